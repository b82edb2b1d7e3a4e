/** The form for a new key, and the request body built from it. */

import { toApprovers, type ApproversChoice } from "../approvals/approvers.ts";

export type ProviderToolsChoice = "default" | "allowed" | "refused";

export interface KeyForm {
  name: string;
  description: string;
  roles: string;
  tools: string;
  rate: string;
  expires: string;
  providerTools: ProviderToolsChoice;
  approvalBy: ApproversChoice;
}

export const EMPTY_KEY_FORM: KeyForm = {
  name: "",
  description: "",
  roles: "",
  tools: "",
  rate: "",
  expires: "",
  providerTools: "default",
  approvalBy: "default",
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
  if (form.providerTools !== "default") {
    entry["provider_tools"] = form.providerTools === "allowed";
  }
  const approvers = toApprovers(form.approvalBy);
  if (approvers !== null) {
    entry["approval_by"] = approvers;
  }
  return entry;
}

function splitNames(text: string): string[] {
  return text
    .split(/[\s,]+/)
    .map((name) => name.trim())
    .filter((name) => name !== "");
}
