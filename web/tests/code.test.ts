import assert from "node:assert/strict";
import { test } from "node:test";

import { answerOf } from "../src/code/answer.ts";
import { pathsIn } from "../src/code/files.ts";
import { indent, newline, outdent } from "../src/code/typing.ts";

test("files are found at either level", () => {
  assert.deepEqual(pathsIn("servers/\n  fs.pyi  # read, write\n  web.pyi\n"), [
    "servers/fs.pyi",
    "servers/web.pyi",
  ]);
  assert.deepEqual(pathsIn("servers/\n  fs/\n    read.pyi\n  web/\n    get.pyi\n"), [
    "servers/fs/read.pyi",
    "servers/web/get.pyi",
  ]);
});

test("an answer is its result, its calls and what was printed", () => {
  const answer = answerOf({ content: '{"sum":2}\ncalls: zoo.add×2\nprinted:\na\ncalls: not these' });
  assert.equal(answer.text, '{"sum":2}');
  assert.equal(answer.calls, "zoo.add×2");
  assert.equal(answer.printed, "a\ncalls: not these");
  assert.equal(answer.ok, true);
});

test("a failure says where, a limit which, a wait for what", () => {
  const failed = answerOf({
    content:
      "the script failed at line 3, column 10: no\n- did you mean `files`?\ncalls: fs.read (these are done)",
    is_error: true,
  });
  assert.equal(failed.line, 3);
  assert.equal(failed.text, "the script failed at line 3, column 10: no\n- did you mean `files`?");
  const stopped = answerOf({ content: "the script was stopped (time) at line 2: too long", is_error: true });
  assert.deepEqual([stopped.limit, stopped.line], ["time", 2]);
  const waits = answerOf({ content: "the script waits", is_error: true, approval: { id: "a1" } });
  assert.equal(waits.approval, "a1");
});

test("Tab goes to the next stop, and moves whole lines where they are selected", () => {
  assert.deepEqual(indent({ text: "ab", from: 2, to: 2 }), { text: "ab  ", from: 4, to: 4 });
  const both = indent({ text: "a\nb", from: 0, to: 3 });
  assert.equal(both.text, "    a\n    b");
  assert.equal(outdent(both).text, "a\nb");
});

test("a new line is as deep as the one before, deeper after a colon", () => {
  assert.equal(newline({ text: "  x", from: 3, to: 3 }).text, "  x\n  ");
  assert.equal(newline({ text: "for x in y:", from: 11, to: 11 }).text, "for x in y:\n    ");
});
