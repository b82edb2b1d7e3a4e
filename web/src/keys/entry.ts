/** A key that is about to be made: what the form holds, and what it sends. */

export interface KeyForm {
  name: string;
  description: string;
  roles: string;
  tools: string;
  rate: string;
  expires: string;
}

export const BLANK: KeyForm = { name: "", description: "", roles: "", tools: "", rate: "", expires: "" };

/** Fields of `[keys.NAME]`; what is empty is left away. */
export function keyEntry(form: KeyForm): Record<string, unknown> {
  const entry: Record<string, unknown> = { name: form.name.trim() };
  const set = (key: string, value: string | string[]) => {
    if (value.length > 0) {
      entry[key] = value;
    }
  };
  set("description", form.description.trim());
  set("roles", names(form.roles));
  set("tools", names(form.tools));
  set("rate_limit", form.rate.trim());
  const expires = new Date(form.expires);
  set("expires_at", Number.isNaN(expires.getTime()) ? form.expires : expires.toISOString());
  return entry;
}

function names(text: string): string[] {
  return text
    .split(/[\s,]+/)
    .map((name) => name.trim())
    .filter((name) => name !== "");
}
