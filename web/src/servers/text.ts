/** Parses and formats settings that are typed as text: lists, command lines and headers. */

/** Splits text into lines, without blank ones. */
export function splitLines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

/** Splits a command line into words like a shell: quotes and backslashes work, nothing else does. */
export function splitCommandLine(text: string): string[] {
  const words: string[] = [];
  let word: string | null = null;
  let quote: string | null = null;
  for (let at = 0; at < text.length; at += 1) {
    const c = text.charAt(at);
    if (quote !== null) {
      if (c === quote) {
        quote = null;
      } else if (c === "\\" && quote === '"' && /["\\]/.test(text.charAt(at + 1))) {
        word += text.charAt((at += 1));
      } else {
        word += c;
      }
    } else if (c === '"' || c === "'") {
      quote = c;
      // An empty pair of quotes is a word too.
      word ??= "";
    } else if (c === "\\" && at + 1 < text.length) {
      word = (word ?? "") + text.charAt((at += 1));
    } else if (/\s/.test(c)) {
      if (word !== null) {
        words.push(word);
      }
      word = null;
    } else {
      word = (word ?? "") + c;
    }
  }
  return word === null ? words : [...words, word];
}

/** Parses `Name: value` lines. */
export function parseHeaders(text: string): Record<string, string> {
  const pairs = splitLines(text).map((line): [string, string] => {
    const colon = line.indexOf(":");
    return colon < 0 ? [line, ""] : [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
  });
  return Object.fromEntries(pairs);
}

/** Formats headers as `Name: value` lines. */
export function formatHeaders(headers: Record<string, string> | undefined): string {
  return Object.entries(headers ?? {})
    .map(([name, value]) => `${name}: ${value}`)
    .join("\n");
}
