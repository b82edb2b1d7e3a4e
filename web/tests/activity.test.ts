import assert from "node:assert/strict";
import { test } from "node:test";

import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";

import { RecordChange } from "../src/activity/change.tsx";
import { KINDS, outcomeTone, parseKind, recordTitle } from "../src/activity/kinds.ts";
import { compareValues, detailProperties, formatValue } from "../src/activity/record-detail.ts";
import { TrailStatusLine } from "../src/activity/trail-status.tsx";

const renderChange = (detail: unknown) => renderToStaticMarkup(createElement(RecordChange, { detail }));

test("changes are compared value by value", () => {
  const before = { name: "a", env: { TOKEN: "***", OLD: "1" }, args: ["x"] };
  const after = { name: "a", env: { TOKEN: "***" }, args: ["x", "y"], on: true };
  const changed = compareValues(before, after).filter((value) => value.changed);
  assert.deepEqual(
    changed.map(({ path, before, after }) => [path, formatValue(before), formatValue(after)]),
    [
      ["env.OLD", "1", "–"],
      ["args", '["x"]', '["x","y"]'],
      ["on", "–", "yes"],
    ],
  );
  assert.deepEqual(compareValues(undefined, 15), [{ path: "", before: undefined, after: 15, changed: true }]);
  assert.deepEqual(compareValues(null, undefined), []);
  assert.equal(compareValues({ a: {} }, { a: { b: 1 } }).length, 2);
});

test("changes are shown side by side as text, and what stayed the same is folded away", () => {
  const before = { tools: ["*"], rate: 1, note: "<img src=x>" };
  const html = renderChange({ target: "ci", before, after: { tools: [], rate: 1 } });
  assert.match(html, /<del>\[&quot;\*&quot;\]<\/del>/);
  assert.match(html, /<ins>\[\]<\/ins>/);
  assert.match(html, /<del>&lt;img src=x&gt;<\/del>/);
  assert.match(html, /<summary>1 unchanged value<\/summary>/);
  assert.match(renderChange('{"cut… [70000 bytes in total]'), /<pre.*70000 bytes/);
  assert.equal(renderChange({ by: "admin" }), "");
  assert.equal(renderChange(undefined), "");
});

test("details other than changes are properties with labels", () => {
  const decision = { by: "admin", scope: "once", reason: null, edited: false };
  assert.deepEqual(detailProperties(decision), [
    ["Decided by", "admin"],
    ["Scope", "once"],
    ["Arguments edited", "no"],
  ]);
  assert.deepEqual(detailProperties({ hidden_tool: "zoo.add", gate: "keys.ci" }), [
    ["Hidden tool", "zoo.add"],
    ["Hidden by", "keys.ci"],
  ]);
  assert.deepEqual(detailProperties({ target: "ci", before: {}, after: {} }), [["Target", "ci"]]);
  assert.deepEqual(detailProperties("cut off"), []);
});

test("kinds of records have labels and outcomes, and unknown names mean tool calls", () => {
  assert.equal(parseKind("admin"), "admin");
  assert.equal(parseKind("toString"), "tool");
  assert.equal(parseKind(undefined), "tool");
  assert.equal(KINDS.all.outcomes.filter((outcome) => outcome === "denied").length, 1);
  assert.deepEqual(["approved", "expired", "unauthorized"].map(outcomeTone), ["good", "warn", "bad"]);
  assert.equal(recordTitle({ server: "zoo", tool: "add", name: "zoo_add" }), "zoo.add");
  assert.equal(recordTitle({ server: "zoo", tool: null, name: "file:///a" }), "file:///a");
});

test("state of the audit trail names its limits and problems", () => {
  const status = {
    bytes: 1536,
    max_bytes: 2 ** 32,
    retention_days: 30,
    oldest_at: null,
    last_entry: null,
    sealed_at: null,
    store_problem: null,
    sink_problem: null,
  };
  const render = (change: object) =>
    renderToStaticMarkup(createElement(TrailStatusLine, { status: { ...status, ...change } }));
  assert.match(render({}), /1\.5 KiB of 4 GiB.*kept for 30 days.*not sealed yet/);
  assert.match(render({}), /status good/);
  const forever = render({ max_bytes: null, retention_days: null, sink_problem: "it is away" });
  assert.match(forever, /status bad.*Second sink: it is away.*1\.5 KiB<.*kept forever/);
});
