/**
 * JSON whose numbers stay what they are. `JSON.parse` turns 18446744073709551617 into another
 * number; where the browser can, such a number is kept as its text and written back unchanged.
 */

type Context = { source?: string };
type RawJson = (text: string) => unknown;

const rawJson = (JSON as unknown as { rawJSON?: RawJson }).rawJSON;

/** Whether a number loses digits as a double. */
export function loses(value: number, source: string): boolean {
  if (String(value) === source || Number.isSafeInteger(value)) {
    return false;
  }
  const digits = source.replace(/e.*$/i, "").replace(/[-.]/g, "").replace(/^0+/, "");
  return !Number.isFinite(value) || digits.length > 15 || (value === 0 && digits !== "");
}

export function parse(text: string): unknown {
  if (!rawJson) {
    return JSON.parse(text);
  }
  const keep = (_: string, value: unknown, context?: Context): unknown =>
    typeof value === "number" && context?.source !== undefined && loses(value, context.source)
      ? rawJson(context.source)
      : value;
  return JSON.parse(text, keep as (key: string, value: unknown) => unknown);
}

/** For people to read. */
export function pretty(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? "";
}

/** A text as readable JSON if it is JSON, else as it is. */
export function prettyText(text: string): string {
  try {
    return pretty(parse(text));
  } catch {
    return text;
  }
}
