import assert from "node:assert/strict";
import { test } from "node:test";

import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";

import { parseReadiness } from "../src/api/readiness.ts";
import { ConfigurationProblems, RecordingProblem } from "../src/ui/banner.tsx";

test("readiness is unknown unless the gateway itself answers", () => {
  for (const [text, problem] of [
    ['{"status":"ready","servers":1,"connected":1}', null],
    ['{"status":"stopping","reason":"disk is full"}', null],
    ['{"status":"not_writable","reason":"disk is full"}', "disk is full"],
    ['{"status":"not_writable"}', "its data cannot be written"],
    ["<html>bad gateway", undefined],
    ["null", undefined],
    ["{}", undefined],
  ] as const) {
    assert.equal(parseReadiness(text), problem, text);
  }
});

test("banner is an alert with the reason", () => {
  const html = renderToStaticMarkup(createElement(RecordingProblem, { problem: "disk <b>full</b>" }));
  assert.match(html, /role="alert"/);
  assert.match(html, /disk &lt;b&gt;full/);
  assert.match(html, /refused/);
});

test("problems of the configuration are shown, and nothing without them", () => {
  const render = (messages: string[]) => {
    const list = { problems: messages.map((message) => ({ message })) };
    return renderToStaticMarkup(createElement(ConfigurationProblems, { list }));
  };
  assert.equal(render([]), "");
  assert.match(render(["<i>a</i> is not trusted", "b"]), /role="alert".*&lt;i&gt;a.*<p>b<\/p>/);
});
