// A real MCP client (the TypeScript SDK, version 1 or 2) that exercises every feature through a gateway
// and reports the results.
//
// Usage: client.mjs TARGET KIND, where TARGET is a URL or, for a server on standard input and output, its
// command as a JSON array, and KIND is `v1`, `v2-legacy`, `v2-auto` or `v2-2026-07-28`.
// Prints one JSON object with the result or the error of each step.

const STEP_TIMEOUT_MS = 30_000;
const USER = { username: "ada", email: "ada@example.com" };

const [, , target, kind] = process.argv;
const isStdio = target.startsWith("[");
const updates = [];

function onElicit({ params }) {
  const requested = params.requestedSchema.properties ?? {};
  const content = Object.fromEntries(Object.entries(USER).filter(([name]) => name in requested));
  return { action: "accept", content };
}

function onSample() {
  return { role: "assistant", content: { type: "text", text: "Paris" }, model: "test" };
}

function onUpdate({ params }) {
  updates.push(params.uri);
}

async function connect() {
  const info = { name: "test", version: "1.0.0" };
  const capabilities = { elicitation: {}, sampling: {} };
  const version = kind === "v1" ? await version1() : await version2();
  const client = new version.Client(info, { capabilities, ...version.options });
  client.setRequestHandler(version.elicit, onElicit);
  client.setRequestHandler(version.sample, onSample);
  client.setNotificationHandler(version.updated, onUpdate);
  await client.connect(openTransport(version));
  return client;
}

function openTransport({ StreamableHTTPClientTransport, StdioClientTransport }) {
  if (!isStdio) return new StreamableHTTPClientTransport(new URL(target));
  const [command, ...args] = JSON.parse(target);
  return new StdioClientTransport({ command, args });
}

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
    elicit: types.ElicitRequestSchema,
    sample: types.CreateMessageRequestSchema,
    updated: types.ResourceUpdatedNotificationSchema,
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
    updated: "notifications/resources/updated",
  };
}

const mcp = await connect();
let names = [];
let uris = [];

// Returns the gateway's name for a tool of the server.
const tool = (name) => names.find((each) => each.endsWith(name));

function call(name, args = {}, options = {}) {
  const params = { name: tool(name), arguments: args };
  return kind === "v1" ? mcp.callTool(params, undefined, options) : mcp.callTool(params, options);
}

const text = (result) => result.content[0].text;
const cancellations = async () => Number(text(await call("test_count_cancellations")));
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function subscribe(uri) {
  if (kind !== "v1" && mcp.getProtocolEra() === "modern") {
    const subscription = await mcp.listen({ resourceSubscriptions: [uri] });
    return () => subscription.close();
  }
  await mcp.subscribeResource({ uri });
  return () => mcp.unsubscribeResource({ uri });
}

const steps = {
  async tools() {
    names = (await mcp.listTools()).tools.map((each) => each.name).sort();
    return names;
  },
  async called() {
    return text(await call("test_simple_text"));
  },
  async added() {
    const sums = {};
    for (const name of names.filter((each) => each.endsWith("_add"))) {
      sums[name] = text(await call(name, { a: 1, b: 2 }));
    }
    return sums;
  },
  async failed() {
    return (await call("test_error_handling")).isError;
  },
  async read() {
    uris = (await mcp.listResources()).resources.map((each) => each.uri);
    const uri = uris.find((each) => each.endsWith("test://static-text"));
    return (await mcp.readResource({ uri })).contents[0];
  },
  async template() {
    const templates = (await mcp.listResourceTemplates()).resourceTemplates;
    const found = templates.find((each) => each.uriTemplate.includes("test://template"));
    const uri = found.uriTemplate.replace("{id}", "7");
    return (await mcp.readResource({ uri })).contents[0].uri;
  },
  async prompt() {
    const prompts = (await mcp.listPrompts()).prompts;
    const { name } = prompts.find((each) => each.name.endsWith("test_prompt_with_arguments"));
    const got = await mcp.getPrompt({ name, arguments: { arg1: "one", arg2: "two" } });
    return { name, text: got.messages[0].content.text };
  },
  async progress() {
    const reported = [];
    const onprogress = ({ progress }) => isStdio || reported.push(progress);
    if (isStdio) {
      // The SDK drops notifications that it reads together with the response, as often happens with a
      // pipe, so they are counted before it handles them.
      const { transport } = mcp;
      const handle = transport.onmessage;
      transport.onmessage = (message, ...rest) => {
        if (message.method === "notifications/progress") reported.push(message.params.progress);
        handle.call(transport, message, ...rest);
      };
    }
    await call("test_tool_with_progress", {}, { onprogress });
    while (reported.length < 3) await sleep(10);
    return [...reported];
  },
  async elicited() {
    return text(await call("test_elicitation", { message: "Who are you?" }));
  },
  async sampled() {
    return text(await call("test_sampling", { prompt: "The capital of France?" }));
  },
  // Returns the URI in the update notification of a subscribed resource.
  async updated() {
    const stop = await subscribe(uris.find((each) => each.endsWith("test://watched-resource")));
    // Legacy clients open their notification stream at any time: it may not exist yet.
    while (updates.length === 0) {
      await call("test_trigger_resource_update");
      for (let polls = 0; polls < 100 && updates.length === 0; polls += 1) await sleep(10);
    }
    await stop();
    return updates[0];
  },
  // Returns whether the server received the cancellation of a call.
  async cancelled() {
    const before = await cancellations();
    const controller = new AbortController();
    const options = { onprogress: () => controller.abort("enough"), signal: controller.signal };
    await call("test_wait_for_cancellation", {}, options).catch(() => {});
    while ((await cancellations()) === before) await sleep(50);
    return true;
  },
};

const timeout = async () => {
  await sleep(STEP_TIMEOUT_MS);
  throw new Error("timed out");
};
const results = {};
for (const [name, step] of Object.entries(steps)) {
  results[name] = await Promise.race([step(), timeout()]).catch((error) => `failed: ${error}`);
}
console.log(JSON.stringify(results));
await mcp.close();
process.exit();
