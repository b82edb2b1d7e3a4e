/** Small things that every view is made of. */

import { useEffect, useId, useState, type ReactNode } from "react";

export type Tone = "good" | "warn" | "bad" | "info" | "quiet" | "accent";

export function Badge({
  tone = "quiet",
  title,
  children,
}: {
  tone?: Tone;
  title?: string;
  children: ReactNode;
}) {
  return (
    <span className={`badge ${tone}`} title={title}>
      {children}
    </span>
  );
}

/** A word with a dot in the colour of what it means. */
export function Status({ tone, children }: { tone: Tone; children: ReactNode }) {
  return (
    <span className={`status ${tone}`}>
      <span className="dot" aria-hidden="true" />
      {children}
    </span>
  );
}

export function Notice({ tone, children }: { tone: Tone; children: ReactNode }) {
  return (
    <div className={`notice ${tone}`} role={tone === "bad" ? "alert" : "status"}>
      {children}
    </div>
  );
}

/** What went wrong, in the gateway's words. */
export function Failure({ error }: { error: string | null }) {
  return error === null ? null : <Notice tone="bad">{error}</Notice>;
}

/** Figures stand to the right; what is unseen is for those who listen. */
type Head = string | { number: string } | { unseen: string };

function HeadCell({ head }: { head: Head }) {
  if (typeof head === "string") {
    return <th scope="col">{head}</th>;
  }
  if ("number" in head) {
    return (
      <th scope="col" className="number">
        {head.number}
      </th>
    );
  }
  return (
    <th scope="col">
      <span className="unseen">{head.unseen}</span>
    </th>
  );
}

export function Table({ heads, children }: { heads: Head[]; children: ReactNode }) {
  return (
    <table className="table">
      <thead>
        <tr>
          {heads.map((head, at) => (
            <HeadCell key={at} head={head} />
          ))}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {children}
    </div>
  );
}

const LATE = 150;

/** Grey lines while something is awaited; not for what comes at once. */
export function Loading() {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), LATE);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className="loading" role="status" aria-label="Loading">
      {late && [0, 1, 2].map((line) => <span key={line} className="skeleton" />)}
    </div>
  );
}

interface SwitchProps {
  label: string;
  on: boolean;
  disabled?: boolean;
  hidden?: boolean;
  onChange: (on: boolean) => void;
}

/** A switch with its label; with `hidden` only screen readers hear the label. */
export function Switch({ label, on, disabled = false, hidden = false, onChange }: SwitchProps) {
  const id = useId();
  return (
    <span className="switch">
      <button
        id={id}
        type="button"
        role="switch"
        aria-checked={on}
        aria-label={label}
        disabled={disabled}
        onClick={() => onChange(!on)}
      >
        <span className="knob" />
      </button>
      {!hidden && <label htmlFor={id}>{label}</label>}
    </span>
  );
}

interface FieldProps {
  label: string;
  hint?: ReactNode;
  children: (id: string) => ReactNode;
}

export function Field({ label, hint, children }: FieldProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children(id)}
      {hint !== undefined && <p className="hint">{hint}</p>}
    </div>
  );
}

export interface Choice<T extends string> {
  value: T;
  label: string;
}

interface ChoicesProps<T extends string> {
  label: string;
  value: T;
  choices: readonly Choice<T>[];
  onChange: (value: T) => void;
}

/** One of a few, side by side. */
export function Choices<T extends string>({ label, value, choices, onChange }: ChoicesProps<T>) {
  const name = useId();
  return (
    <div className="choices" role="radiogroup" aria-label={label}>
      {choices.map((choice) => (
        <label key={choice.value} className={choice.value === value ? "chosen" : ""}>
          <input
            type="radio"
            name={name}
            checked={choice.value === value}
            onChange={() => onChange(choice.value)}
          />
          {choice.label}
        </label>
      ))}
    </div>
  );
}

export function Search({
  value,
  label,
  onChange,
}: {
  value: string;
  label: string;
  onChange: (text: string) => void;
}) {
  return (
    <input
      className="search"
      type="search"
      value={value}
      placeholder={label}
      aria-label={label}
      spellCheck={false}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}

export function Head({ title, says, children }: { title: string; says?: ReactNode; children?: ReactNode }) {
  return (
    <header className="head">
      <div>
        <h1>{title}</h1>
        {says !== undefined && <p>{says}</p>}
      </div>
      {children !== undefined && <div className="actions">{children}</div>}
    </header>
  );
}

/** Text as it is, in a fixed width. */
export function Block({ text, label, low = false }: { text: string; label: string; low?: boolean }) {
  return (
    <pre className={low ? "block low" : "block"} tabIndex={0} aria-label={label}>
      {text}
    </pre>
  );
}

export function Copy({ text }: { text: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
    } catch {
      // Not allowed here: the text can be selected by hand.
    }
  };
  return (
    <button type="button" className="small" onClick={() => void copy()}>
      {done ? "Copied" : "Copy"}
    </button>
  );
}
