/** The form for a new key, and the request body built from it. */

export interface KeyForm {
  name: string;
  description: string;
  roles: string;
  tools: string;
  rate: string;
  expires: string;
}

export const EMPTY_KEY_FORM: KeyForm = {
  name: "",
  description: "",
  roles: "",
  tools: "",
  rate: "",
  expires: "",
};

/** Converts the form to the fields of `[keys.NAME]`, without empty ones. */
export function toKeyEntry(form: KeyForm): Record<string, unknown> {
  const entry: Record<string, unknown> = { name: form.name.trim() };
  const setIfPresent = (key: string, value: string | string[]) => {
    if (value.length > 0) {
      entry[key] = value;
    }
  };
  setIfPresent("description", form.description.trim());
  setIfPresent("roles", splitNames(form.roles));
  setIfPresent("tools", splitNames(form.tools));
  setIfPresent("rate_limit", form.rate.trim());
  const expires = new Date(form.expires);
  setIfPresent("expires_at", Number.isNaN(expires.getTime()) ? form.expires : expires.toISOString());
  return entry;
}

function splitNames(text: string): string[] {
  return text
    .split(/[\s,]+/)
    .map((name) => name.trim())
    .filter((name) => name !== "");
}
