import assert from "node:assert/strict";
import { test } from "node:test";

import { keyEntry, BLANK } from "../src/keys/entry.ts";
import { resultText, stepsOf, titleOf, waitsFor } from "../src/runs/steps.ts";
import { ms, when } from "../src/ui/format.ts";

const at = "2026-01-01T00:00:00Z";

test("a call is told once, where it ended or came to wait, with what it was given", () => {
  const steps = stepsOf({
    timeline: [
      {
        at,
        step: {
          kind: "turn",
          calls: [
            { id: "c1", name: "add", arguments: '{"a":1}' },
            { id: "c2", name: "write", arguments: '{"b":2}' },
          ],
        },
      },
      { at, step: { kind: "call_opened", id: "c1", name: "add", arguments: '{"a":1}' } },
      { at, step: { kind: "call_closed", id: "c1", name: "add", arguments: '{"a":1}', result: [] } },
      { at, step: { kind: "call_waits", id: "c2", name: "write", approval_id: "x" } },
      { at, step: { kind: "answered" } },
      { at, step: { kind: "call_opened", id: "c3", name: "sleep", arguments: "{}" } },
    ],
  }).map(({ step }) => step);
  assert.deepEqual(steps.map(titleOf), ["The model calls add, write", "add", "write waits", "sleep runs"]);
  assert.equal(steps[2]?.arguments, '{"b":2}');
});

test("a wait names its approvals, those of a script's calls too, each once", () => {
  const inner = [
    { tool: "a.b", approval_id: "x" },
    { tool: "a.c", approval_id: "y" },
  ];
  assert.deepEqual(waitsFor({ kind: "call_waits", approval_id: "x", inner }), ["x", "y"]);
});

test("results are texts where they are texts, else JSON", () => {
  assert.equal(resultText([{ type: "text", text: "42" }]), "42");
  assert.match(resultText([{ type: "image", data: "…" }]), /image/);
});

test("a key has what was filled in", () => {
  assert.deepEqual(keyEntry({ ...BLANK, name: " ci ", tools: "a.*, b.c", rate: "60/min" }), {
    name: "ci",
    tools: ["a.*", "b.c"],
    rate_limit: "60/min",
  });
  assert.match(
    String(keyEntry({ ...BLANK, name: "x", expires: "2027-01-31T12:00" })["expires_at"]),
    /^2027-01-3/,
  );
});

test("times are told as people tell them", () => {
  const now = Date.parse(at);
  assert.equal(when("2025-12-31T23:58:00Z", now), "2 minutes ago");
  assert.equal(when("2026-01-01T00:00:28Z", now), "in 28 seconds");
  assert.equal(when(at, now), "just now");
  assert.deepEqual([0.2, 13.4, 5001].map(ms), ["< 1 ms", "13 ms", "5.0 s"]);
});
