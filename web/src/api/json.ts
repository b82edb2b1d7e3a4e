/**
 * JSON without loss of precision. `JSON.parse` rounds numbers such as 18446744073709551617; if the
 * browser supports `JSON.rawJSON`, they are kept as source text and written back unchanged.
 */

type Context = { source?: string };
type RawJson = (text: string) => unknown;

const rawJson = (JSON as unknown as { rawJSON?: RawJson }).rawJSON;

/** Whether a number loses digits as a double. */
export function losesPrecision(value: number, source: string): boolean {
  if (String(value) === source || Number.isSafeInteger(value)) {
    return false;
  }
  const digits = source.replace(/e.*$/i, "").replace(/[-.]/g, "").replace(/^0+/, "");
  return !Number.isFinite(value) || digits.length > 15 || (value === 0 && digits !== "");
}

export function parseJson(text: string): unknown {
  if (!rawJson) {
    return JSON.parse(text);
  }
  const reviver = (_: string, value: unknown, context?: Context): unknown =>
    typeof value === "number" && context?.source !== undefined && losesPrecision(value, context.source)
      ? rawJson(context.source)
      : value;
  return JSON.parse(text, reviver as (key: string, value: unknown) => unknown);
}

/** Formats a value as indented JSON. */
export function formatJson(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? "";
}

/** Indents a text if it is JSON, otherwise returns it unchanged. */
export function formatIfJson(text: string): string {
  try {
    return formatJson(parseJson(text));
  } catch {
    return text;
  }
}
