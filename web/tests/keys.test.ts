import assert from "node:assert/strict";
import { test } from "node:test";

import { APPROVERS_OPTIONS, toApprovers, toApproversChoice } from "../src/approvals/approvers.ts";
import { EMPTY_KEY_FORM, toKeyEntry } from "../src/keys/entry.ts";

test("entry of a new key has only what was filled in", () => {
  assert.deepEqual(toKeyEntry({ ...EMPTY_KEY_FORM, name: " ci " }), { name: "ci" });
  const form = { ...EMPTY_KEY_FORM, name: "ci", tools: "a.*, b.c", rate: "1/min" };
  assert.deepEqual(toKeyEntry({ ...form, providerTools: "refused", approvalBy: "both" }), {
    name: "ci",
    tools: ["a.*", "b.c"],
    rate_limit: "1/min",
    provider_tools: false,
    approval_by: ["admin", "client"],
  });
  const allowed = toKeyEntry({ ...EMPTY_KEY_FORM, name: "ci", providerTools: "allowed" });
  assert.equal(allowed["provider_tools"], true);
});

test("every choice of approvers is shown as it was made", () => {
  for (const { value } of APPROVERS_OPTIONS) {
    assert.equal(toApproversChoice(toApprovers(value)), value);
  }
  assert.equal(toApproversChoice(undefined), "default");
});
