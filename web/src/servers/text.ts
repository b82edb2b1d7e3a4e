/** Settings as people type them: lines, command lines, headers. */

/** Lines that say something. */
export function lines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

/** A command line in its words, as a shell would part it; nothing else of a shell is understood. */
export function words(text: string): string[] {
  const found: string[] = [];
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
      word ??= "";
    } else if (c === "\\" && at + 1 < text.length) {
      word = (word ?? "") + text.charAt((at += 1));
    } else if (/\s/.test(c)) {
      if (word !== null) {
        found.push(word);
      }
      word = null;
    } else {
      word = (word ?? "") + c;
    }
  }
  return word === null ? found : [...found, word];
}

/** `Name: value` lines as an object. */
export function headers(text: string): Record<string, string> {
  const pairs = lines(text).map((line): [string, string] => {
    const at = line.indexOf(":");
    return at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
  return Object.fromEntries(pairs);
}

export function headerLines(given: Record<string, string> | undefined): string {
  return Object.entries(given ?? {})
    .map(([name, value]) => `${name}: ${value}`)
    .join("\n");
}
