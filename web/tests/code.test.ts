import assert from "node:assert/strict";
import { test } from "node:test";

import { parseScriptOutput } from "../src/code/script-output.ts";
import { parseFileTree } from "../src/code/files.ts";
import { indent, insertNewline, outdent } from "../src/code/text-editing.ts";

/** Fields of every tool message, which the page does not read. */
const MESSAGE = { role: "tool", tool_call_id: "" };

test("file tree is parsed at server and at tool level", () => {
  assert.deepEqual(parseFileTree("servers/\n  fs.pyi  # read, write\n  web.pyi\n"), [
    "servers/fs.pyi",
    "servers/web.pyi",
  ]);
  assert.deepEqual(parseFileTree("servers/\n  fs/\n    read.pyi\n  web/\n    get.pyi\n"), [
    "servers/fs/read.pyi",
    "servers/web/get.pyi",
  ]);
});

test("script output has a result, calls and printed text", () => {
  const output = parseScriptOutput({
    ...MESSAGE,
    content: '{"sum":2}\ncalls: zoo.add×2\nprinted:\na\ncalls: not these',
  });
  assert.equal(output.text, '{"sum":2}');
  assert.equal(output.calls, "zoo.add×2");
  assert.equal(output.printed, "a\ncalls: not these");
  assert.equal(output.ok, true);
});

test("failed script output has a line, a limit or an approval", () => {
  const failed = parseScriptOutput({
    ...MESSAGE,
    content:
      "the script failed at line 3, column 10: no\n- did you mean `files`?\ncalls: fs.read (these are done)",
    is_error: true,
  });
  assert.equal(failed.line, 3);
  assert.equal(failed.text, "the script failed at line 3, column 10: no\n- did you mean `files`?");
  const stopped = parseScriptOutput({
    ...MESSAGE,
    content: "the script was stopped (time) at line 2: too long",
    is_error: true,
  });
  assert.deepEqual([stopped.limit, stopped.line], ["time", 2]);
  const waiting = parseScriptOutput({
    ...MESSAGE,
    content: "the script is waiting for a decision",
    is_error: true,
    approval: { id: "a1" },
  });
  assert.equal(waiting.approval, "a1");
});

test("indent moves to the next tab stop or indents all selected lines", () => {
  assert.deepEqual(indent({ text: "ab", from: 2, to: 2 }), { text: "ab  ", from: 4, to: 4 });
  const both = indent({ text: "a\nb", from: 0, to: 3 });
  assert.equal(both.text, "    a\n    b");
  assert.equal(outdent(both).text, "a\nb");
});

test("insertNewline keeps the indentation and adds a level after a colon", () => {
  assert.equal(insertNewline({ text: "  x", from: 3, to: 3 }).text, "  x\n  ");
  assert.equal(insertNewline({ text: "for x in y:", from: 11, to: 11 }).text, "for x in y:\n    ");
});
