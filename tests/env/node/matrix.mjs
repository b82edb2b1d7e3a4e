// A real MCP client (the TypeScript SDK or the command line of the Inspector) that uses each feature of several
// servers and reports the results.
//
// Usage: matrix.mjs KIND PLAN, where KIND is `v1` or `v2` for a version of the SDK, or `inspector`, and PLAN is a
// JSON object: for each run, `servers` has the addresses of `fixtures` and, if they are checked, of `everything` and
// `odd`. An address is a URL or, for a server on standard input and output, its command as a list. `log` is the file
// in which the fixtures log requests, and `missing` lists features that are expected not to work.
// Prints one JSON object: for each run and feature `{"result": …}` or `{"error": …}`. All runs take place at once.

import { readFile } from "node:fs/promises";

import { connectInspector, INSPECTOR_LACKS } from "./matrix_inspector.mjs";

const STEP_TIMEOUT_MS = 60_000;
// Time to wait for notifications; without hope, a failure is only confirmed.
const PATIENCE_MS = 30_000;
const BRIEF_PATIENCE_MS = 2_000;
const USER = { username: "ada", email: "ada@example.com" };
const ROOT = "file:///home/ada";

const [, , kind, planText] = process.argv;
const plan = JSON.parse(planText);

const text = (result) => result.content[0].text;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function waitUntil(condition, patience = STEP_TIMEOUT_MS) {
  for (const end = Date.now() + patience; !condition(); await sleep(10)) {
    if (Date.now() > end) throw new Error("timed out");
  }
}

const patience = (run, feature) => (run.missing.includes(feature) ? BRIEF_PATIENCE_MS : PATIENCE_MS);

// Repeats an action until a condition is true: legacy clients open their notification stream at any time, so it
// may not exist yet.
async function repeatUntil(condition, limit, action) {
  for (const end = Date.now() + limit; !condition(); ) {
    if (Date.now() > end) throw new Error("timed out");
    await action();
    await waitUntil(condition, 1000).catch(() => {});
  }
}

function onElicit({ params }) {
  const requested = params.requestedSchema.properties ?? {};
  const content = Object.fromEntries(Object.entries(USER).filter(([name]) => name in requested));
  return { action: "accept", content };
}

function onSample() {
  return { role: "assistant", content: { type: "text", text: "Paris" }, model: "test" };
}

async function loadVersion1() {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const http = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const stdio = await import("@modelcontextprotocol/sdk/client/stdio.js");
  const types = await import("@modelcontextprotocol/sdk/types.js");
  return {
    Client,
    ...http,
    ...stdio,
    elicit: types.ElicitRequestSchema,
    sample: types.CreateMessageRequestSchema,
    roots: types.ListRootsRequestSchema,
    updated: types.ResourceUpdatedNotificationSchema,
    listChanged: types.ToolListChangedNotificationSchema,
    logged: types.LoggingMessageNotificationSchema,
  };
}

async function loadVersion2() {
  const client = await import("@modelcontextprotocol/client");
  const stdio = await import("@modelcontextprotocol/client/stdio");
  return {
    ...client,
    ...stdio,
    options: { versionNegotiation: { mode: "auto" } },
    elicit: "elicitation/create",
    sample: "sampling/createMessage",
    roots: "roots/list",
    updated: "notifications/resources/updated",
    listChanged: "notifications/tools/list_changed",
    logged: "notifications/message",
  };
}

// Connects with the SDK, and adds what differs between its versions.
async function connectSdk(address) {
  const sdk = kind === "v1" ? await loadVersion1() : await loadVersion2();
  const capabilities = { elicitation: {}, sampling: {}, roots: {} };
  const client = new sdk.Client({ name: "test", version: "1.0.0" }, { capabilities, ...sdk.options });
  const events = { updates: [], logs: [], listChanges: 0, progress: [] };
  client.setRequestHandler(sdk.elicit, onElicit);
  client.setRequestHandler(sdk.sample, onSample);
  client.setRequestHandler(sdk.roots, () => ({ roots: [{ uri: ROOT }] }));
  client.setNotificationHandler(sdk.updated, ({ params }) => void events.updates.push(params.uri));
  client.setNotificationHandler(sdk.logged, ({ params }) => void events.logs.push(params.data));
  client.setNotificationHandler(sdk.listChanged, () => void (events.listChanges += 1));
  const transport =
    typeof address === "string"
      ? new sdk.StreamableHTTPClientTransport(new URL(address))
      : new sdk.StdioClientTransport({ command: address[0], args: address.slice(1) });
  await client.connect(transport);
  // The SDK drops progress that it reads together with the response, as often happens with a pipe, so it is
  // noted before the SDK handles it.
  const handle = transport.onmessage;
  transport.onmessage = (message, ...rest) => {
    if (message.method === "notifications/progress") events.progress.push(message.params.progress);
    handle.call(transport, message, ...rest);
  };
  client.events = events;
  client.isModern = kind !== "v1" && client.getProtocolEra() === "modern";
  client.use = (name, args = {}, options = {}) => {
    const params = { name, arguments: args };
    if (client.isModern) params._meta = { "io.modelcontextprotocol/logLevel": "info" };
    return kind === "v1" ? client.callTool(params, undefined, options) : client.callTool(params, options);
  };
  return client;
}

async function subscribe(client, uri) {
  if (client.isModern) {
    const subscription = await client.listen({ resourceSubscriptions: [uri] });
    return () => subscription.close();
  }
  await client.subscribeResource({ uri });
  return () => client.unsubscribeResource({ uri });
}

const toolNames = async (client) => (await client.listTools()).tools.map(({ name }) => name).sort();

// The features of the fixture server.
const fixtures = {
  list: toolNames,
  call: async (client) => text(await client.use("test_simple_text")),
  structured: async (client) => (await client.use("test_structured_output")).structuredContent,
  large: async (client) => text(await client.use("test_large_result")).length,
  async progress(client) {
    const { progress } = client.events;
    await client.use("test_tool_with_progress", {}, { onprogress() {} });
    await waitUntil(() => progress.length === 3);
    return [...progress];
  },
  // Returns whether the server received the cancellation of a call.
  async cancel(client, run) {
    const count = async () => (await readFile(run.log, "utf8")).split("cancelled\n").length;
    const before = await count();
    const controller = new AbortController();
    const options = { onprogress: () => controller.abort("enough"), signal: controller.signal };
    await client.use("test_wait_for_cancellation", {}, options).catch(() => {});
    while ((await count()) === before) await sleep(50);
    return true;
  },
  elicitation: async (client) => text(await client.use("test_elicitation", { message: "Who are you?" })),
  sampling: async (client) => text(await client.use("test_sampling", { prompt: "The capital of France?" })),
  roots: async (client) => text(await client.use("test_input_required_result_list_roots")),
  async logging(client, run) {
    if (!client.isModern) await client.setLoggingLevel("info");
    const { logs } = client.events;
    await client.use("test_tool_with_logging");
    await waitUntil(() => new Set(logs).size >= 3, patience(run, "logging"));
    // Repetitions are not compared: one run through the gateway got the last message twice, under load.
    return [...new Set(logs)];
  },
  async resources(client) {
    const { resources } = await client.listResources();
    const { uri } = resources.find((each) => each.uri === "test://static-text");
    return (await client.readResource({ uri })).contents;
  },
  async templates(client) {
    const { resourceTemplates } = await client.listResourceTemplates();
    const uri = resourceTemplates[0].uriTemplate.replace("{id}", "7");
    return (await client.readResource({ uri })).contents[0].uri;
  },
  async prompts(client) {
    const { prompts } = await client.listPrompts();
    const { name } = prompts.find((each) => each.name === "test_prompt_with_arguments");
    const got = await client.getPrompt({ name, arguments: { arg1: "one", arg2: "two" } });
    return got.messages[0].content.text;
  },
  async completion(client) {
    const ref = { type: "ref/prompt", name: "test_prompt_with_arguments" };
    const done = await client.complete({ ref, argument: { name: "arg1", value: "par" } });
    return done.completion.values;
  },
  // Returns the URI in the update notification of a subscribed resource.
  async subscribe(client, run) {
    const stop = await subscribe(client, "test://watched-resource");
    const { updates } = client.events;
    const isUpdated = () => updates.length > 0;
    await repeatUntil(isUpdated, patience(run, "subscribe"), () => client.use("test_trigger_resource_update"));
    await stop();
    return updates[0];
  },
  // Returns whether the list has another tool after the notification of its change.
  async list_changes(client, run) {
    const subscription = client.isModern && (await client.listen({ toolsListChanged: true }));
    let isAdded = (await toolNames(client)).includes("test_dynamic_tool");
    const isChanged = () => client.events.listChanges > 0;
    await repeatUntil(isChanged, patience(run, "list_changes"), async () => {
      await client.use("test_trigger_tool_change");
      isAdded = !isAdded;
    });
    while ((await toolNames(client)).includes("test_dynamic_tool") !== isAdded) await sleep(50);
    if (subscription) await subscription.close();
    return true;
  },
};

// Features that the reference server has.
const everything = {
  capabilities: toolNames,
  async tasks(client) {
    const params = { name: "simulate-research-query", arguments: { topic: "gateways" } };
    if (kind !== "v1") {
      // Other clients do not know tasks; they can only call the tool.
      return text(await client.use(params.name, params.arguments)).split("\n")[0];
    }
    await client.listTools();
    for await (const message of client.experimental.tasks.callToolStream(params)) {
      if (message.type === "error") throw message.error;
      if (message.type === "result") return text(message.result).split("\n")[0];
    }
    throw new Error("no result");
  },
};

// Lists with malformed definitions.
const odd = {
  malformed: async (client) => ({
    tools: (await client.listTools()).tools.length,
    resources: (await client.listResources()).resources.length,
    resourceTemplates: (await client.listResourceTemplates()).resourceTemplates.length,
    prompts: (await client.listPrompts()).prompts.length,
  }),
};

async function timeout() {
  await sleep(STEP_TIMEOUT_MS);
  throw new Error("timed out");
}

async function check(run, server, results) {
  const address = run.servers[server];
  const features = { fixtures, everything, odd }[server];
  let client;
  try {
    client = await (kind === "inspector" ? connectInspector(address) : connectSdk(address));
  } catch (error) {
    for (const feature of Object.keys(features)) results[feature] = { error: `no connection: ${error}` };
    return;
  }
  for (const [feature, use] of Object.entries(features)) {
    try {
      if (kind === "inspector" && INSPECTOR_LACKS.includes(feature)) throw new Error("no option for this");
      results[feature] = { result: await Promise.race([use(client, run), timeout()]) };
    } catch (error) {
      results[feature] = { error: `${error}` };
    }
  }
  await client.close().catch(() => {});
}

const results = {};
const checks = Object.entries(plan).flatMap(([name, run]) => {
  results[name] = {};
  return Object.keys(run.servers).map((server) => check(run, server, results[name]));
});
await Promise.all(checks);
process.stdout.write(JSON.stringify(results), () => process.exit());
