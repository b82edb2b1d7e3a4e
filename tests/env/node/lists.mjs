// A real MCP client (the TypeScript SDK, version 1 or 2) that lists everything and uses all of it.
//
// Usage: lists.mjs KIND URL..., where KIND is `v1`, `v2-legacy`, `v2-auto` or `v2-2026-07-28`.
// Prints one JSON object: for each URL, the keys of each list or the error of the SDK, and the errors of uses.

const [, , kind, ...urls] = process.argv;
const info = { name: "test", version: "1.0.0" };

async function connect(url) {
  if (kind === "v1") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await import(
      "@modelcontextprotocol/sdk/client/streamableHttp.js"
    );
    const client = new Client(info);
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const mode = kind.slice("v2-".length);
  const client = new Client(info, {
    versionNegotiation: { mode: mode.startsWith("2") ? { pin: mode } : mode },
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
}

async function useLists(url) {
  const client = await connect(url);
  const results = { errors: {} };
  async function use(list, key, request, useItem) {
    try {
      results[list] = (await request())[list].map((item) => item[key]).sort();
    } catch (error) {
      results[list] = `${error}`;
      return;
    }
    for (const name of results[list]) {
      try {
        const result = await useItem(name);
        if (result?.isError) throw new Error(JSON.stringify(result.content));
      } catch (error) {
        results.errors[name] = `${error}`;
      }
    }
  }
  const call = (name) => client.callTool({ name, arguments: {} });
  const read = (uri) => client.readResource({ uri });
  await use("tools", "name", () => client.listTools(), call);
  await use("resources", "uri", () => client.listResources(), read);
  await use("resourceTemplates", "uriTemplate", () => client.listResourceTemplates(), (template) =>
    read(template.replaceAll(/[{}]/g, "")),
  );
  await use("prompts", "name", () => client.listPrompts(), (name) => client.getPrompt({ name }));
  await client.close();
  return results;
}

const results = {};
for (const url of urls) results[url] = await useLists(url);
console.log(JSON.stringify(results));
process.exit();
