// An MCP server on standard input and output whose lists and results depend on the extensions of the client.

import { createInterface } from "node:readline";

const UI = "io.modelcontextprotocol/ui";
const capabilities = {
  tools: {},
  resources: {},
  extensions: { [UI]: {}, "com.example/audit": { level: 2 }, "io.modelcontextprotocol/tasks": {} },
};
const inputSchema = { type: "object" };
let declared = {};

const hasUi = () => declared.extensions?.[UI] !== undefined;
const show = () => ({
  name: "show",
  inputSchema,
  ...(hasUi() && { _meta: { ui: { resourceUri: "ui://show" } } }),
});
const answers = {
  initialize(params) {
    declared = params.capabilities;
    const serverInfo = { name: "extensions", version: "1.0.0" };
    return { protocolVersion: "2025-11-25", capabilities, serverInfo };
  },
  "tools/list"() {
    const only = hasUi() ? [{ name: "refresh", inputSchema }] : [{ name: "print", inputSchema }];
    return { tools: [show(), ...only] };
  },
  "tools/call"({ name }) {
    return { content: [{ type: "text", text: JSON.stringify({ name, declared }) }] };
  },
  "resources/list"() {
    return { resources: hasUi() ? [{ uri: "ui://show", name: "show" }] : [] };
  },
  "resources/templates/list"() {
    return { resourceTemplates: [] };
  },
  "resources/read"({ uri }) {
    return { contents: [{ uri, text: JSON.stringify(declared) }] };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const answer = answers[method];
  const outcome = answer
    ? { result: answer(params) }
    : { error: { code: -32601, message: `unknown method ${method}` } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...outcome }));
}
