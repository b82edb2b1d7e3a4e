// A real MCP client (the TypeScript SDK, version 1 or 2) that declares every capability, for servers whose
// lists depend on them.
//
// Usage: capabilities.mjs TARGET KIND, where TARGET is a URL or, for a server on standard input and output,
// its command as a JSON array, and KIND is `v1`, `v2-legacy`, `v2-auto` or `v2-2026-07-28`.
// Prints one JSON object: the tools, the result of one that samples, and whether the server asked for roots
// by itself.

const [, , target, kind] = process.argv;
const info = { name: "test", version: "1.0.0" };
let markAsked;
const asked = new Promise((resolve) => {
  markAsked = resolve;
});

async function version1() {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import(
    "@modelcontextprotocol/sdk/client/streamableHttp.js"
  );
  const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
  const types = await import("@modelcontextprotocol/sdk/types.js");
  return {
    Client,
    StreamableHTTPClientTransport,
    StdioClientTransport,
    // Version 2 does not know the experimental tasks.
    tasks: { requests: { sampling: { createMessage: {} }, elicitation: { create: {} } } },
    elicit: types.ElicitRequestSchema,
    sample: types.CreateMessageRequestSchema,
    roots: types.ListRootsRequestSchema,
  };
}

async function version2() {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const mode = kind.slice("v2-".length);
  return {
    Client,
    StreamableHTTPClientTransport,
    StdioClientTransport,
    options: { versionNegotiation: { mode: mode.startsWith("2") ? { pin: mode } : mode } },
    elicit: "elicitation/create",
    sample: "sampling/createMessage",
    roots: "roots/list",
  };
}

function openTransport({ StreamableHTTPClientTransport, StdioClientTransport }) {
  if (!target.startsWith("[")) return new StreamableHTTPClientTransport(new URL(target));
  const [command, ...args] = JSON.parse(target);
  return new StdioClientTransport({ command, args });
}

const version = kind === "v1" ? await version1() : await version2();
const capabilities = {
  roots: { listChanged: true },
  sampling: {},
  elicitation: { form: {}, url: {} },
  ...(version.tasks && { tasks: version.tasks }),
};
const client = new version.Client(info, { capabilities, ...version.options });
client.setRequestHandler(version.elicit, () => ({ action: "decline" }));
client.setRequestHandler(version.sample, () => ({
  role: "assistant",
  content: { type: "text", text: "Paris" },
  model: "test",
}));
client.setRequestHandler(version.roots, () => {
  markAsked(true);
  return { roots: [{ uri: "file:///home", name: "home" }] };
});
await client.connect(openTransport(version));
const tools = (await client.listTools()).tools.map((tool) => tool.name).sort();
const name = tools.find((tool) => tool.endsWith("trigger-sampling-request"));
const sampled = name && (await client.callTool({ name, arguments: { prompt: "capital of France" } }));
const isLegacy = kind === "v1" || kind === "v2-legacy";
// The server asks a moment after it was initialized, when no call is in progress.
const rootsAsked = isLegacy && (await asked);
// Ends a server that was started for this client.
await client.close();
console.log(JSON.stringify({ tools, sampled, rootsAsked }));
process.exit();
