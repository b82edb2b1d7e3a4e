import assert from "node:assert/strict";
import { test } from "node:test";

import { ALL, enable, has, missing, NONE, runsUnasked, same, turned } from "../src/servers/tool-list.ts";

const OFFERED = ["read", "write", "list"];

test("turning one off from all names all the others", () => {
  assert.deepEqual(turned(ALL, "write", "off", OFFERED), ["read", "list"]);
});

test("turning one on in all changes nothing, and the last one on does not make it all", () => {
  assert.deepEqual(turned(ALL, "write", "on", OFFERED), ALL);
  assert.deepEqual(turned(["read", "list"], "write", "on", OFFERED), ["read", "list", "write"]);
});

test("from none, one is one, and off again is none", () => {
  const one = turned(NONE, "read", "on", OFFERED);
  assert.deepEqual(one, ["read"]);
  assert.deepEqual(turned(one, "read", "off", OFFERED), []);
});

test("a name that is not offered stays in an explicit list", () => {
  assert.deepEqual(turned(["gone", "read"], "read", "off", OFFERED), ["gone"]);
  assert.deepEqual(missing(["gone", "read"], OFFERED), ["gone"]);
  assert.deepEqual(missing(ALL, OFFERED), []);
});

test("a tool that is disabled does not come back as one that runs unasked", () => {
  const off = enable({ execute: ALL, auto: ["read", "write"] }, "write", "off", OFFERED);
  assert.deepEqual(off, { execute: ["read", "list"], auto: ["read"] });
  const on = enable(off, "write", "on", OFFERED);
  assert.equal(runsUnasked(on, "write"), false);
});

test("all that run unasked are those that are enabled", () => {
  const lists = enable({ execute: ALL, auto: ALL }, "write", "off", OFFERED);
  assert.deepEqual(lists.auto, ALL);
  assert.equal(runsUnasked(lists, "write"), false);
  assert.equal(runsUnasked(lists, "read"), true);
});

test("order says nothing, and all is not the same as every one", () => {
  assert.ok(same(["a", "b"], ["b", "a"]));
  assert.ok(same(["*"], ["*", "a"]));
  assert.ok(!same(ALL, OFFERED));
  assert.ok(!same(["a"], []));
  assert.ok(has(ALL, "later"));
});
