/** Edits for the Tab and Enter keys, applied to the editor's text and selection. */

/** The editor's text, with a selection from `from` to `to`. */
export interface EditorText {
  text: string;
  from: number;
  to: number;
}

const INDENT = "    ";

/** Inserts spaces up to the next tab stop, or indents all lines of a multi-line selection. */
export function indent({ text, from, to }: EditorText): EditorText {
  if (!text.slice(from, to).includes("\n")) {
    const column = from - lineStart(text, from);
    const spaces = INDENT.slice(column % INDENT.length);
    return replaceSelection({ text, from, to }, spaces);
  }
  return mapSelectedLines({ text, from, to }, (line) => (line === "" ? line : INDENT + line));
}

export function outdent(editor: EditorText): EditorText {
  return mapSelectedLines(editor, (line) => line.replace(/^ {1,4}|^\t/, ""));
}

/** Inserts a line break and keeps the indentation, one level deeper after a colon. */
export function insertNewline(editor: EditorText): EditorText {
  const { text, from } = editor;
  const before = text.slice(lineStart(text, from), from);
  const indentation = /^ */.exec(before)?.[0] ?? "";
  const extra = /:\s*(#.*)?$/.test(before) ? INDENT : "";
  return replaceSelection(editor, `\n${indentation}${extra}`);
}

function replaceSelection({ text, from, to }: EditorText, inserted: string): EditorText {
  const cursor = from + inserted.length;
  return { text: text.slice(0, from) + inserted + text.slice(to), from: cursor, to: cursor };
}

function mapSelectedLines({ text, from, to }: EditorText, change: (line: string) => string): EditorText {
  const start = lineStart(text, from);
  const before = text.slice(start, to).split("\n");
  const after = before.map(change);
  const firstLineGrowth = (after[0] ?? "").length - (before[0] ?? "").length;
  const totalGrowth = after.join("\n").length - (to - start);
  return {
    text: text.slice(0, start) + after.join("\n") + text.slice(to),
    from: Math.max(start, from + firstLineGrowth),
    to: to + totalGrowth,
  };
}

function lineStart(text: string, position: number): number {
  return text.lastIndexOf("\n", position - 1) + 1;
}
