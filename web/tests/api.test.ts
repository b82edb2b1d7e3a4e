import assert from "node:assert/strict";
import { test } from "node:test";

import { toApiError } from "../src/api/client.ts";
import { losesPrecision } from "../src/api/json.ts";
import { keyFromHash } from "../src/api/session.ts";
import { SseParser } from "../src/api/sse.ts";
import { buildDecisionBody } from "../src/approvals/decision.ts";
import { parseRoute, routeHash } from "../src/route.ts";

const STREAM = ': hello\n\nevent: server\ndata: {"a":\ndata: 1}\n\r\nevent:call\r\ndata:x\r\n\r\ndata: y\n\n';
const EVENTS = [
  { event: "server", data: '{"a":\n1}' },
  { event: "call", data: "x" },
  { event: "message", data: "y" },
];

test("SSE parser yields the same events for any chunk size", () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const parser = new SseParser();
    const events = [];
    for (let at = 0; at < STREAM.length; at += size) {
      events.push(...parser.push(STREAM.slice(at, at + size)));
    }
    assert.deepEqual(events, EVENTS, `chunk size ${size}`);
  }
});

test("API errors use the gateway's message, or the status and body of other responses", () => {
  const unauthorized = toApiError(
    401,
    '{"error":{"message":"this requires the admin key","code":"unauthorized"}}',
  );
  assert.equal(unauthorized.message, "this requires the admin key");
  assert.equal(unauthorized.code, "unauthorized");
  assert.match(toApiError(502, "<html>bad gateway").message, /502.*bad gateway/);
});

test("losesPrecision detects numbers that a double cannot hold", () => {
  for (const [source, expected] of [
    ["1", false],
    ["30.0", false],
    ["0.30000000000000004", false],
    ["9007199254740991", false],
    ["18446744073709551617", true],
    ["1e400", true],
    ["3.14159265358979323846", true],
  ] as const) {
    assert.equal(losesPrecision(Number(source), source), expected, source);
  }
});

test("keyFromHash returns the key of a login link and null for other hashes", () => {
  assert.equal(keyFromHash("#key=tg-admin-abc"), "tg-admin-abc");
  assert.equal(keyFromHash("#/key=a+b"), "a b");
  assert.equal(keyFromHash("#/servers"), null);
  assert.equal(keyFromHash("#key="), null);
});

test("routes round-trip through the hash", () => {
  assert.deepEqual(parseRoute(""), { view: "servers", item: null });
  assert.deepEqual(parseRoute(routeHash("servers", "a/b c")), { view: "servers", item: "a/b c" });
  assert.deepEqual(parseRoute("#/runs/%"), { view: "runs", item: "%" });
});

test("decision body contains edited arguments exactly as typed", () => {
  assert.equal(
    buildDecisionBody({ verb: "approve", scope: "once", edited: '{"n": 18446744073709551617}' }),
    '{"decision":"approve","scope":"once","arguments":{"n": 18446744073709551617}}',
  );
  assert.throws(() => buildDecisionBody({ verb: "approve", scope: "once", edited: "{" }), /not valid JSON/);
  assert.equal(buildDecisionBody({ verb: "deny", reason: "" }), '{"decision":"deny"}');
});
