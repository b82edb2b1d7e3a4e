/** A plain editor: line numbers, indentation, and the line where a script failed. */

import { useLayoutEffect, useRef, type KeyboardEvent } from "react";

import { indent, newline, outdent, type Typed } from "./typing.ts";

const PLACEHOLDER = `found = server.tool(name="value")
print(found)
result = found`;

interface Props {
  value: string;
  wrong: number | null;
  onChange: (text: string) => void;
  onRun: () => void;
}

export function Editor({ value, wrong, onChange, onRun }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  const selection = useRef<[number, number] | null>(null);
  // Escape lets Tab leave the editor, for those who have no mouse.
  const leaving = useRef(false);

  useLayoutEffect(() => {
    const shown = area.current;
    if (!shown) {
      return;
    }
    shown.style.height = "auto";
    shown.style.height = `${shown.scrollHeight}px`;
    if (selection.current) {
      shown.setSelectionRange(...selection.current);
      selection.current = null;
    }
  }, [value]);

  const type = (event: KeyboardEvent<HTMLTextAreaElement>, change: (typed: Typed) => Typed) => {
    event.preventDefault();
    const { selectionStart: from, selectionEnd: to } = event.currentTarget;
    const typed = change({ text: value, from, to });
    selection.current = [typed.from, typed.to];
    onChange(typed.text);
  };
  const press = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    const leaves = leaving.current;
    leaving.current = event.key === "Escape";
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      onRun();
    } else if (event.key === "Enter" && !event.shiftKey) {
      type(event, newline);
    } else if (event.key === "Tab" && !leaves) {
      type(event, event.shiftKey ? outdent : indent);
    }
  };
  const count = value.split("\n").length;
  return (
    <div className="editor">
      <div className="gutter" aria-hidden="true">
        {Array.from({ length: count }, (_, at) => (
          <span key={at} className={at + 1 === wrong ? "wrong" : undefined}>
            {at + 1}
          </span>
        ))}
      </div>
      <textarea
        ref={area}
        aria-label="Script"
        aria-description="Escape, then Tab, leaves the editor"
        value={value}
        spellCheck={false}
        autoCapitalize="off"
        autoComplete="off"
        wrap="off"
        placeholder={PLACEHOLDER}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={press}
      />
    </div>
  );
}
