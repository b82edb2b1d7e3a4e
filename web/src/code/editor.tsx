/** A simple code editor with line numbers, indentation and a marker for the line with an error. */

import { useLayoutEffect, useRef, type KeyboardEvent } from "react";

import { indent, insertNewline, outdent, type EditorText } from "./text-editing.ts";

const PLACEHOLDER = `found = server.tool(name="value")
print(found)
result = found`;

interface Props {
  value: string;
  errorLine: number | null;
  onChange: (text: string) => void;
  onRun: () => void;
}

export function Editor({ value, errorLine, onChange, onRun }: Props) {
  const textareaRef = useRef<HTMLTextAreaElement>(null);
  const pendingSelection = useRef<[number, number] | null>(null);
  // After Escape, Tab moves the focus instead of indenting, for keyboard users.
  const escapePressed = useRef(false);

  useLayoutEffect(() => {
    const textarea = textareaRef.current;
    if (!textarea) {
      return;
    }
    textarea.style.height = "auto";
    textarea.style.height = `${textarea.scrollHeight}px`;
    if (pendingSelection.current) {
      textarea.setSelectionRange(...pendingSelection.current);
      pendingSelection.current = null;
    }
  }, [value]);

  const applyEdit = (event: KeyboardEvent<HTMLTextAreaElement>, edit: (before: EditorText) => EditorText) => {
    event.preventDefault();
    const { selectionStart: from, selectionEnd: to } = event.currentTarget;
    const edited = edit({ text: value, from, to });
    pendingSelection.current = [edited.from, edited.to];
    onChange(edited.text);
  };
  const handleKeyDown = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    const leaveOnTab = escapePressed.current;
    escapePressed.current = event.key === "Escape";
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      onRun();
    } else if (event.key === "Enter" && !event.shiftKey) {
      applyEdit(event, insertNewline);
    } else if (event.key === "Tab" && !leaveOnTab) {
      applyEdit(event, event.shiftKey ? outdent : indent);
    }
  };
  const lineCount = value.split("\n").length;
  return (
    <div className="editor">
      <div className="gutter" aria-hidden="true">
        {Array.from({ length: lineCount }, (_, index) => (
          <span key={index} className={index + 1 === errorLine ? "error-line" : undefined}>
            {index + 1}
          </span>
        ))}
      </div>
      <textarea
        ref={textareaRef}
        aria-label="Script"
        aria-description="Press Escape, then Tab, to leave the editor"
        value={value}
        spellCheck={false}
        autoCapitalize="off"
        autoComplete="off"
        wrap="off"
        placeholder={PLACEHOLDER}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={handleKeyDown}
      />
    </div>
  );
}
