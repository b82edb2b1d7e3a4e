/** Basic components shared by all views. */

import { useEffect, useId, useState, type ReactNode } from "react";

export type Tone = "good" | "warn" | "bad" | "info" | "neutral" | "accent";

export function Badge({
  tone = "neutral",
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

/** A label with a colored dot. */
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

/** Shows an error, or nothing if there is none. */
export function ErrorNotice({ error }: { error: string | null }) {
  return error === null ? null : <Notice tone="bad">{error}</Notice>;
}

/** A column heading. Number columns are right-aligned; hidden headings are for screen readers only. */
type Column = string | { number: string } | { hidden: string };

function ColumnHeading({ column }: { column: Column }) {
  if (typeof column === "string") {
    return <th scope="col">{column}</th>;
  }
  if ("number" in column) {
    return (
      <th scope="col" className="number">
        {column.number}
      </th>
    );
  }
  return (
    <th scope="col">
      <span className="visually-hidden">{column.hidden}</span>
    </th>
  );
}

export function Table({ columns, children }: { columns: Column[]; children: ReactNode }) {
  return (
    <table className="table">
      <thead>
        <tr>
          {columns.map((column, index) => (
            <ColumnHeading key={index} column={column} />
          ))}
        </tr>
      </thead>
      <tbody>{children}</tbody>
    </table>
  );
}

export function EmptyState({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {children}
    </div>
  );
}

const SKELETON_DELAY_MS = 150;

/** A placeholder while data loads. Fast responses never show it. */
export function Loading() {
  const [showSkeleton, setShowSkeleton] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShowSkeleton(true), SKELETON_DELAY_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className="loading" role="status" aria-label="Loading">
      {showSkeleton && [0, 1, 2].map((line) => <span key={line} className="skeleton" />)}
    </div>
  );
}

interface SwitchProps {
  label: string;
  on: boolean;
  disabled?: boolean;
  hideLabel?: boolean;
  onChange: (on: boolean) => void;
}

/** A switch and its label. With `hideLabel`, the label is for screen readers only. */
export function Switch({ label, on, disabled = false, hideLabel = false, onChange }: SwitchProps) {
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
        <span className="thumb" />
      </button>
      {!hideLabel && <label htmlFor={id}>{label}</label>}
    </span>
  );
}

interface FieldProps {
  label: string;
  hint?: ReactNode;
  children: (id: string) => ReactNode;
}

/** A labeled form field. `children` renders the input with the given id. */
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

interface SelectFieldProps<T extends string> {
  label: string;
  hint?: ReactNode;
  value: T;
  options: readonly { value: T; label: string }[];
  onChange: (value: T) => void;
}

/** A labeled drop-down list. */
export function SelectField<T extends string>({
  label,
  hint,
  value,
  options,
  onChange,
}: SelectFieldProps<T>) {
  return (
    <Field label={label} hint={hint}>
      {(id) => (
        <select id={id} value={value} onChange={(event) => onChange(event.target.value as T)}>
          {options.map((option) => (
            <option key={option.value} value={option.value}>
              {option.label}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

interface SegmentedControlProps<T extends string> {
  label: string;
  value: T;
  options: readonly { value: T; label: string }[];
  onChange: (value: T) => void;
}

/** Radio buttons for a few options, side by side. */
export function SegmentedControl<T extends string>({
  label,
  value,
  options,
  onChange,
}: SegmentedControlProps<T>) {
  const name = useId();
  return (
    <div className="segmented" role="radiogroup" aria-label={label}>
      {options.map((option) => (
        <label key={option.value} className={option.value === value ? "selected" : ""}>
          <input
            type="radio"
            name={name}
            checked={option.value === value}
            onChange={() => onChange(option.value)}
          />
          {option.label}
        </label>
      ))}
    </div>
  );
}

export function SearchInput({
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

interface PageHeaderProps {
  title: string;
  description?: string;
  /** Buttons and other controls. */
  children?: ReactNode;
}

export function PageHeader({ title, description, children }: PageHeaderProps) {
  return (
    <header className="page-header">
      <div>
        <h1>{title}</h1>
        {description !== undefined && <p>{description}</p>}
      </div>
      {children !== undefined && <div className="actions">{children}</div>}
    </header>
  );
}

/** Preformatted text. With `compact`, it starts low and can be resized. */
export function CodeBlock({
  text,
  label,
  compact = false,
}: {
  text: string;
  label: string;
  compact?: boolean;
}) {
  return (
    <pre className={compact ? "code-block compact" : "code-block"} tabIndex={0} aria-label={label}>
      {text}
    </pre>
  );
}

export function CopyButton({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
    } catch {
      // The browser denied access to the clipboard. The text can still be selected.
    }
  };
  return (
    <button type="button" className="small" onClick={() => void copy()}>
      {copied ? "Copied" : "Copy"}
    </button>
  );
}
