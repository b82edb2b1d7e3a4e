import assert from "node:assert/strict";
import { test } from "node:test";

import { failure } from "../src/api/client.ts";
import { loses } from "../src/api/json.ts";
import { keyInHash } from "../src/api/session.ts";
import { SseReader } from "../src/api/sse.ts";
import { decisionOf } from "../src/approvals/decision.ts";
import { hashOf, routeOf } from "../src/route.ts";

const STREAM = ': hello\n\nevent: server\ndata: {"a":\ndata: 1}\n\r\nevent:call\r\ndata:x\r\n\r\ndata: y\n\n';
const EVENTS = [
  { event: "server", data: '{"a":\n1}' },
  { event: "call", data: "x" },
  { event: "message", data: "y" },
];

test("events are the same however the stream is cut", () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const reader = new SseReader();
    const events = [];
    for (let at = 0; at < STREAM.length; at += size) {
      events.push(...reader.push(STREAM.slice(at, at + size)));
    }
    assert.deepEqual(events, EVENTS, `pieces of ${size}`);
  }
});

test("errors have the gateway's words, and something sensible from others", () => {
  const refused = failure(401, '{"error":{"message":"this needs the admin key","code":"unauthorized"}}');
  assert.equal(refused.message, "this needs the admin key");
  assert.equal(refused.code, "unauthorized");
  assert.match(failure(502, "<html>bad gateway").message, /502.*bad gateway/);
});

test("only numbers that would lose digits are kept as text", () => {
  for (const [source, expected] of [
    ["1", false],
    ["30.0", false],
    ["0.30000000000000004", false],
    ["9007199254740991", false],
    ["18446744073709551617", true],
    ["1e400", true],
    ["3.14159265358979323846", true],
  ] as const) {
    assert.equal(loses(Number(source), source), expected, source);
  }
});

test("a login link gives its key, other addresses none", () => {
  assert.equal(keyInHash("#key=tg-admin-abc"), "tg-admin-abc");
  assert.equal(keyInHash("#/key=a+b"), "a b");
  assert.equal(keyInHash("#/servers"), null);
  assert.equal(keyInHash("#key="), null);
});

test("routes go there and back", () => {
  assert.deepEqual(routeOf(""), { view: "servers", item: null });
  assert.deepEqual(routeOf(hashOf("servers", "a/b c")), { view: "servers", item: "a/b c" });
  assert.deepEqual(routeOf("#/runs/%"), { view: "runs", item: "%" });
});

test("edited arguments go as they were typed", () => {
  assert.equal(
    decisionOf({ verb: "approve", scope: "once", edited: '{"n": 18446744073709551617}' }),
    '{"decision":"approve","scope":"once","arguments":{"n": 18446744073709551617}}',
  );
  assert.throws(() => decisionOf({ verb: "approve", scope: "once", edited: "{" }), /not JSON/);
  assert.equal(decisionOf({ verb: "deny", reason: "" }), '{"decision":"deny"}');
});
