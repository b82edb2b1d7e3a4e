import assert from "node:assert/strict";
import { test } from "node:test";

import type { ClientView as ClientConfig } from "../src/api/schema.ts";
import { buildServerPatch, isEmpty, toDraft } from "../src/servers/draft.ts";
import { EMPTY_SERVER, toClientConfig } from "../src/servers/entry.ts";
import { parseHeaders, splitCommandLine } from "../src/servers/text.ts";
import { buildSettingsPatch, toSettingsForm } from "../src/settings/changes.ts";

/** Settings that the page does not edit. */
const DEFAULTS = { is_ping_available: true, max_in_flight: 64, max_queue: 256, protocol: "auto" };

const STDIO: ClientConfig = {
  ...DEFAULTS,
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
  ...DEFAULTS,
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

test("patch of an unchanged draft is empty", () => {
  for (const config of [STDIO, REMOTE]) {
    assert.ok(isEmpty(buildServerPatch(config, toDraft(config))));
  }
});

test("patch of a toggled switch has one key", () => {
  assert.deepEqual(buildServerPatch(STDIO, { ...toDraft(STDIO), codeMode: true }), {
    is_code_mode_client: true,
  });
  assert.deepEqual(buildServerPatch(STDIO, { ...toDraft(STDIO), enabled: false }), { disabled: true });
});

test("patch has the approvers, and null for the default", () => {
  const shared: ClientConfig = { ...STDIO, approval_by: ["admin", "client"] };
  for (const [config, approvalBy, expected] of [
    [STDIO, "client", ["client"]],
    [STDIO, "nobody", []],
    [shared, "admin", ["admin"]],
    [shared, "default", null],
  ] as const) {
    assert.deepEqual(buildServerPatch(config, { ...toDraft(config), approvalBy }), { approval_by: expected });
  }
  assert.equal(toDraft(shared).approvalBy, "both");
  assert.ok(isEmpty(buildServerPatch(shared, toDraft(shared))));
});

test("patch includes a tool list only if it changed", () => {
  const draft = toDraft(STDIO);
  assert.deepEqual(buildServerPatch(STDIO, { ...draft, tools: { execute: ["read"], auto: ["read"] } }), {
    tools_to_execute: ["read"],
  });
});

test("patch of a changed argument has the whole process config with masked secrets", () => {
  const draft = { ...toDraft(STDIO), args: "-y\nserver-memory\n--verbose\n" };
  assert.deepEqual(buildServerPatch(STDIO, draft), {
    stdio_config: {
      command: "npx",
      args: ["-y", "server-memory", "--verbose"],
      envs: ["TOKEN=***"],
      cwd: "/srv",
    },
  });
});

test("patch of a changed URL does not include headers", () => {
  const draft = { ...toDraft(REMOTE), url: "https://docs.example/v2" };
  assert.deepEqual(buildServerPatch(REMOTE, draft), { connection_string: "https://docs.example/v2" });
});

test("timeout is sent as a number, as text if not numeric, or as null if empty", () => {
  const config = { ...STDIO, tool_execution_timeout: "5s" };
  assert.deepEqual(buildServerPatch(config, { ...toDraft(config), timeout: "" }), {
    tool_execution_timeout: null,
  });
  assert.deepEqual(buildServerPatch(config, { ...toDraft(config), timeout: "90" }), {
    tool_execution_timeout: 90,
  });
  assert.deepEqual(buildServerPatch(config, { ...toDraft(config), timeout: "2m" }), {
    tool_execution_timeout: "2m",
  });
});

test("new server becomes an entry of client_configs", () => {
  const stdio = toClientConfig({
    ...EMPTY_SERVER,
    name: " fs ",
    command: 'npx -y fs "my notes"',
    envs: "A=1\n\nB",
  });
  assert.deepEqual(stdio, {
    name: "fs",
    connection_type: "stdio",
    tools_to_execute: ["*"],
    tools_to_auto_execute: [],
    is_code_mode_client: false,
    stdio_config: { command: "npx", args: ["-y", "fs", "my notes"], envs: ["A=1", "B"] },
  });
  const http = toClientConfig({
    ...EMPTY_SERVER,
    transport: "http",
    url: "https://x/mcp",
    headers: "A: b: c",
  });
  assert.equal(http["connection_string"], "https://x/mcp");
  assert.deepEqual(http["headers"], { A: "b: c" });
});

test("command line is split like in a shell", () => {
  assert.deepEqual(splitCommandLine("  a  b\tc "), ["a", "b", "c"]);
  assert.deepEqual(splitCommandLine(`'a b' "c \\"d\\"" e\\ f ""`), ["a b", 'c "d"', "e f", ""]);
  assert.deepEqual(splitCommandLine(""), []);
  assert.deepEqual(parseHeaders("Accept: text/plain\nX: "), { Accept: "text/plain", X: "" });
});

test("settings patch has only changes, with numbers as numbers", () => {
  const settings = {
    max_agent_depth: 10,
    tool_execution_timeout: "30s",
    disable_auto_tool_inject: false,
    code_mode_binding_level: "server",
  } as const;
  assert.deepEqual(buildSettingsPatch(settings, toSettingsForm(settings)), {});
  assert.deepEqual(
    buildSettingsPatch(settings, { ...toSettingsForm(settings), depth: "15", timeout: "45s", level: "tool" }),
    {
      max_agent_depth: 15,
      tool_execution_timeout: "45s",
      code_mode_binding_level: "tool",
    },
  );
});
