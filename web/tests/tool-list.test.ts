import assert from "node:assert/strict";
import { test } from "node:test";

import {
  ALL,
  findMissing,
  includesTool,
  isAutoExecuted,
  isSameList,
  NONE,
  setEnabled,
  setTool,
} from "../src/servers/tool-list.ts";

const OFFERED = ["read", "write", "list"];

test('turning a tool off in "all" lists all the others', () => {
  assert.deepEqual(setTool(ALL, "write", "off", OFFERED), ["read", "list"]);
});

test('turning a tool on keeps "all", and a complete list does not become "all"', () => {
  assert.deepEqual(setTool(ALL, "write", "on", OFFERED), ALL);
  assert.deepEqual(setTool(["read", "list"], "write", "on", OFFERED), ["read", "list", "write"]);
});

test("turning a tool on and off again gives an empty list", () => {
  const one = setTool(NONE, "read", "on", OFFERED);
  assert.deepEqual(one, ["read"]);
  assert.deepEqual(setTool(one, "read", "off", OFFERED), []);
});

test("a tool that is not offered stays in an explicit list", () => {
  assert.deepEqual(setTool(["gone", "read"], "read", "off", OFFERED), ["gone"]);
  assert.deepEqual(findMissing(["gone", "read"], OFFERED), ["gone"]);
  assert.deepEqual(findMissing(ALL, OFFERED), []);
});

test("disabling a tool turns off automatic execution for good", () => {
  const off = setEnabled({ execute: ALL, auto: ["read", "write"] }, "write", "off", OFFERED);
  assert.deepEqual(off, { execute: ["read", "list"], auto: ["read"] });
  const on = setEnabled(off, "write", "on", OFFERED);
  assert.equal(isAutoExecuted(on, "write"), false);
});

test("only enabled tools are automatically executed", () => {
  const lists = setEnabled({ execute: ALL, auto: ALL }, "write", "off", OFFERED);
  assert.deepEqual(lists.auto, ALL);
  assert.equal(isAutoExecuted(lists, "write"), false);
  assert.equal(isAutoExecuted(lists, "read"), true);
});

test('list comparison ignores order and distinguishes "all" from a complete list', () => {
  assert.ok(isSameList(["a", "b"], ["b", "a"]));
  assert.ok(isSameList(["*"], ["*", "a"]));
  assert.ok(!isSameList(ALL, OFFERED));
  assert.ok(!isSameList(["a"], []));
  assert.ok(includesTool(ALL, "later"));
});
