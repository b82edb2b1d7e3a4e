/** What Tab and Enter do in the editor, on a text and its selection. */

export interface Typed {
  text: string;
  from: number;
  to: number;
}

const STEP = "    ";

/** Indents; several lines at once where they are selected. */
export function indent({ text, from, to }: Typed): Typed {
  if (!text.slice(from, to).includes("\n")) {
    const column = from - startOfLine(text, from);
    const spaces = STEP.slice(column % STEP.length);
    return put(text, from, to, spaces);
  }
  return eachLine({ text, from, to }, (line) => (line === "" ? line : STEP + line));
}

export function outdent(typed: Typed): Typed {
  return eachLine(typed, (line) => line.replace(/^ {1,4}|^\t/, ""));
}

/** A new line as deep as this one, deeper after a colon. */
export function newline({ text, from, to }: Typed): Typed {
  const before = text.slice(startOfLine(text, from), from);
  const depth = /^ */.exec(before)?.[0] ?? "";
  const deeper = /:\s*(#.*)?$/.test(before) ? STEP : "";
  return put(text, from, to, `\n${depth}${deeper}`);
}

function put(text: string, from: number, to: number, piece: string): Typed {
  const at = from + piece.length;
  return { text: text.slice(0, from) + piece + text.slice(to), from: at, to: at };
}

function eachLine({ text, from, to }: Typed, change: (line: string) => string): Typed {
  const start = startOfLine(text, from);
  const lines = text.slice(start, to).split("\n");
  const changed = lines.map(change);
  const first = (changed[0] ?? "").length - (lines[0] ?? "").length;
  const grown = changed.join("\n").length - (to - start);
  return {
    text: text.slice(0, start) + changed.join("\n") + text.slice(to),
    from: Math.max(start, from + first),
    to: to + grown,
  };
}

function startOfLine(text: string, at: number): number {
  return text.lastIndexOf("\n", at - 1) + 1;
}
