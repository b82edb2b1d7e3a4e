/** A record's details as text, and the differences between before and after a change. */

/** A value inside of a setting, before and after a change; `undefined` where it did not exist. */
export interface ValueChange {
  /** Path of the value, such as `env.TOKEN`; empty if the setting is a single value. */
  path: string;
  before: unknown;
  after: unknown;
  changed: boolean;
}

/** Compares values; those of objects one by one. Arrays are compared as a whole. */
export function compareValues(before: unknown, after: unknown): ValueChange[] {
  const [old, fresh] = [flatten(before), flatten(after)];
  const paths = [...new Set([...old.keys(), ...fresh.keys()])];
  return paths.map((path) => ({
    path,
    before: old.get(path),
    after: fresh.get(path),
    changed: JSON.stringify(old.get(path)) !== JSON.stringify(fresh.get(path)),
  }));
}

function flatten(value: unknown, path = ""): Map<string, unknown> {
  if (value === undefined || (value === null && path === "")) {
    return new Map();
  }
  if (!isObject(value) || Object.keys(value).length === 0) {
    return new Map([[path, value]]);
  }
  const parts = Object.entries(value).map(([name, part]) =>
    flatten(part, path === "" ? name : `${path}.${name}`),
  );
  return new Map(parts.flatMap((part) => [...part]));
}

/** Whether a value is an object in JSON. A number kept as source text is one only in JavaScript. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && JSON.stringify(value).startsWith("{");
}

/** Text as it is, anything else as JSON; a dash for a value that does not exist. */
export function formatValue(value: unknown): string {
  if (value === undefined) {
    return "–";
  }
  if (typeof value === "boolean") {
    return value ? "yes" : "no";
  }
  return typeof value === "string" && value !== "" ? value : JSON.stringify(value);
}

/** Returns the label and text of each detail of a record, except for what was before and after a change. */
export function detailProperties(detail: unknown): [string, string][] {
  const { before: _before, after: _after, ...rest } = isObject(detail) ? detail : {};
  return Object.entries(rest)
    .filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => [detailLabel(name), formatValue(value)]);
}

const DETAIL_LABELS: Readonly<Record<string, string>> = {
  arguments: "Digest of arguments",
  by: "Decided by",
  edited: "Arguments edited",
  gate: "Hidden by",
};

/** `hidden_tool` becomes `Hidden tool`. */
function detailLabel(name: string): string {
  const words = name.replaceAll("_", " ");
  return DETAIL_LABELS[name] ?? words.charAt(0).toUpperCase() + words.slice(1);
}
