import assert from "node:assert/strict";
import { test } from "node:test";

import type { ClientConfig } from "../src/api/types.ts";
import { draftOf, isEmpty, patchOf } from "../src/servers/draft.ts";
import { BLANK, entryOf } from "../src/servers/entry.ts";
import { headers, words } from "../src/servers/text.ts";
import { changesOf, formOf } from "../src/settings/changes.ts";

const STDIO: ClientConfig = {
  name: "memory",
  client_id: "memory",
  connection_type: "stdio",
  stdio_config: { command: "npx", args: ["-y", "server-memory"], envs: ["TOKEN=***"], cwd: "/srv" },
  tools_to_execute: ["*"],
  tools_to_auto_execute: ["read"],
  disabled: false,
  is_code_mode_client: false,
};

const REMOTE: ClientConfig = {
  name: "docs",
  client_id: "docs",
  connection_type: "http",
  connection_string: "https://docs.example/mcp",
  headers: { Authorization: "***", "X-Team": "red" },
  tools_to_execute: ["*"],
  tools_to_auto_execute: [],
  disabled: false,
  is_code_mode_client: false,
};

test("what was not touched is not sent", () => {
  for (const config of [STDIO, REMOTE]) {
    assert.ok(isEmpty(patchOf(config, draftOf(config))));
  }
});

test("a switch is one key", () => {
  assert.deepEqual(patchOf(STDIO, { ...draftOf(STDIO), codeMode: true }), { is_code_mode_client: true });
  assert.deepEqual(patchOf(STDIO, { ...draftOf(STDIO), enabled: false }), { disabled: true });
});

test("lists are sent only if they say something else", () => {
  const draft = draftOf(STDIO);
  assert.deepEqual(patchOf(STDIO, { ...draft, tools: { execute: ["read"], auto: ["read"] } }), {
    tools_to_execute: ["read"],
  });
});

test("a changed argument takes the rest of the process along, its secrets as the masks they came as", () => {
  const draft = { ...draftOf(STDIO), args: "-y\nserver-memory\n--verbose\n" };
  assert.deepEqual(patchOf(STDIO, draft), {
    stdio_config: {
      command: "npx",
      args: ["-y", "server-memory", "--verbose"],
      envs: ["TOKEN=***"],
      cwd: "/srv",
    },
  });
});

test("a changed URL leaves the headers alone", () => {
  const draft = { ...draftOf(REMOTE), url: "https://docs.example/v2" };
  assert.deepEqual(patchOf(REMOTE, draft), { connection_string: "https://docs.example/v2" });
});

test("a timeout is seconds, or what the gateway makes of it, or none", () => {
  const own = { ...STDIO, tool_execution_timeout: 5 };
  assert.deepEqual(patchOf(own, { ...draftOf(own), timeout: "" }), { tool_execution_timeout: null });
  assert.deepEqual(patchOf(own, { ...draftOf(own), timeout: "90" }), { tool_execution_timeout: 90 });
  assert.deepEqual(patchOf(own, { ...draftOf(own), timeout: "2m" }), { tool_execution_timeout: "2m" });
});

test("a new server is an entry of client_configs", () => {
  const stdio = entryOf({ ...BLANK, name: " fs ", command: 'npx -y fs "my notes"', envs: "A=1\n\nB" });
  assert.deepEqual(stdio, {
    name: "fs",
    connection_type: "stdio",
    tools_to_execute: ["*"],
    tools_to_auto_execute: [],
    is_code_mode_client: false,
    stdio_config: { command: "npx", args: ["-y", "fs", "my notes"], envs: ["A=1", "B"] },
  });
  const http = entryOf({ ...BLANK, transport: "http", url: "https://x/mcp", headers: "A: b: c" });
  assert.equal(http["connection_string"], "https://x/mcp");
  assert.deepEqual(http["headers"], { A: "b: c" });
});

test("a command line is parted as a shell would", () => {
  assert.deepEqual(words("  a  b\tc "), ["a", "b", "c"]);
  assert.deepEqual(words(`'a b' "c \\"d\\"" e\\ f ""`), ["a b", 'c "d"', "e f", ""]);
  assert.deepEqual(words(""), []);
  assert.deepEqual(headers("Accept: text/plain\nX: "), { Accept: "text/plain", X: "" });
});

test("settings send what changed, numbers as numbers", () => {
  const settings = {
    max_agent_depth: 10,
    tool_execution_timeout: 30,
    disable_auto_tool_inject: false,
    code_mode_binding_level: "server",
  } as const;
  assert.deepEqual(changesOf(settings, formOf(settings)), {});
  assert.deepEqual(changesOf(settings, { ...formOf(settings), depth: "15", timeout: "45s", level: "tool" }), {
    max_agent_depth: 15,
    tool_execution_timeout: "45s",
    code_mode_binding_level: "tool",
  });
});
