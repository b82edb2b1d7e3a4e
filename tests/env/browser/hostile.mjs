// An MCP server whose every text is markup that would do harm if a page rendered it as HTML.

import { createInterface } from "node:readline";

const MARKUP = process.argv[2];

const tool = {
  name: "speak",
  title: MARKUP,
  description: MARKUP,
  inputSchema: { type: "object", description: MARKUP },
};

const answers = {
  initialize: {
    protocolVersion: "2025-06-18",
    capabilities: { tools: {} },
    serverInfo: { name: MARKUP, version: MARKUP },
    instructions: MARKUP,
  },
  "tools/list": { tools: [tool] },
  "tools/call": { content: [{ type: "text", text: MARKUP }] },
  ping: {},
};

console.error(MARKUP);
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) {
    return;
  }
  const result = answers[method];
  const answer = result ? { result } : { error: { code: -32601, message: MARKUP } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
});
