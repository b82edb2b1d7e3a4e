import assert from "node:assert/strict";
import { test } from "node:test";

import { EMPTY_KEY_FORM, toKeyEntry } from "../src/keys/entry.ts";
import { approvalIds, formatResult, stepTitle, visibleSteps } from "../src/runs/steps.ts";
import { formatBytes, formatDuration, formatRelativeTime } from "../src/ui/format.ts";

const at = "2026-01-01T00:00:00Z";

test("each call is shown once with its arguments, where it ended or started to wait", () => {
  const steps = visibleSteps({
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
  assert.deepEqual(steps.map(stepTitle), [
    "Model called add, write",
    "add",
    "write (waiting)",
    "sleep (running)",
  ]);
  assert.equal(steps[2]?.arguments, '{"b":2}');
});

test("approvalIds includes calls inside a script, without duplicates", () => {
  const inner = [
    { tool: "a.b", approval_id: "x" },
    { tool: "a.c", approval_id: "y" },
  ];
  assert.deepEqual(approvalIds({ kind: "call_waits", approval_id: "x", inner }), ["x", "y"]);
});

test("formatResult returns text content, or JSON for other content", () => {
  assert.equal(formatResult([{ type: "text", text: "42" }]), "42");
  assert.match(formatResult([{ type: "image", data: "…" }]), /image/);
});

test("key entry has only the fields that were filled in", () => {
  assert.deepEqual(toKeyEntry({ ...EMPTY_KEY_FORM, name: " ci ", tools: "a.*, b.c", rate: "60/min" }), {
    name: "ci",
    tools: ["a.*", "b.c"],
    rate_limit: "60/min",
  });
  assert.match(
    String(toKeyEntry({ ...EMPTY_KEY_FORM, name: "x", expires: "2027-01-31T12:00" })["expires_at"]),
    /^2027-01-3/,
  );
});

test("times and durations are formatted for display", () => {
  const now = Date.parse(at);
  assert.equal(formatRelativeTime("2025-12-31T23:58:00Z", now), "2 minutes ago");
  assert.equal(formatRelativeTime("2026-01-01T00:00:28Z", now), "in 28 seconds");
  assert.equal(formatRelativeTime(at, now), "just now");
  assert.deepEqual([0.2, 13.4, 5001].map(formatDuration), ["< 1 ms", "13 ms", "5.0 s"]);
});

test("sizes are formatted in binary units", () => {
  assert.deepEqual([0, 1, 1023, 1024, 20 * 2 ** 20, 2 ** 42].map(formatBytes), [
    "0 bytes",
    "1 byte",
    "1,023 bytes",
    "1 KiB",
    "20 MiB",
    "4 TiB",
  ]);
});
