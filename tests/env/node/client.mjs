// A real MCP client (the TypeScript SDK, version 1 or 2) that uses a gateway in every way it can, and
// says what it saw.
//
// Usage: client.mjs URL KIND, where KIND is `v1`, `v2-legacy`, `v2-auto` or `v2-2026-07-28`.

const [, , url, kind] = process.argv;

async function client() {
  const info = { name: "test", version: "1.0.0" };
  const capabilities = { elicitation: {} };
  if (kind === "v1") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await import(
      "@modelcontextprotocol/sdk/client/streamableHttp.js"
    );
    const made = new Client(info, { capabilities });
    await made.connect(new StreamableHTTPClientTransport(new URL(url)));
    return made;
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const mode = kind.slice("v2-".length);
  const made = new Client(info, {
    capabilities,
    versionNegotiation: { mode: mode.startsWith("2") ? { pin: mode } : mode },
  });
  await made.connect(new StreamableHTTPClientTransport(new URL(url)));
  return made;
}

const mcp = await client();
const progress = [];
const tools = (await mcp.listTools()).tools;
const call = (name, args, options) =>
  kind === "v1"
    ? mcp.callTool({ name, arguments: args }, undefined, options)
    : mcp.callTool({ name, arguments: args }, options);
const added = await call("zoo_add", { a: 1, b: 2 });
await call("zoo_progress", { steps: 3 }, { onprogress: (told) => progress.push(told.progress) });
const failed = await call("zoo_fail", {});
const resources = (await mcp.listResources()).resources;
const text = resources.find((resource) => resource.uri.endsWith("zoo://text"));
const read = await mcp.readResource({ uri: text.uri });
const templates = (await mcp.listResourceTemplates()).resourceTemplates;
const prompts = (await mcp.listPrompts()).prompts;
const greeting = await mcp.getPrompt({ name: "zoo.greet", arguments: { who: "Ada" } });
console.log(
  JSON.stringify({
    tools: tools.map((tool) => tool.name).sort(),
    added: added.content[0].text,
    progress,
    failed: failed.isError,
    read: read.contents[0].uri,
    templates: templates.map((template) => template.uriTemplate),
    prompts: prompts.map((prompt) => prompt.name).sort(),
    greeting: greeting.messages[0].content.text,
  }),
);
await mcp.close();
