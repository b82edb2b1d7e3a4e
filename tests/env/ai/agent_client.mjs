// Reads an agent run with the stream helpers of the OpenAI SDK, like `../models/agent_client.py`.
// Usage: `agent_client.mjs GATEWAY_URL PROVIDER on|off`.

import OpenAI from "openai";

const [gateway, provider, events] = process.argv.slice(2);
const model = `${provider}/m`;
const client = new OpenAI({
  baseURL: `${gateway}/v1`,
  apiKey: "none",
  maxRetries: 0,
  defaultHeaders: { "x-toolgate-events": events },
});
const userMessage = { role: "user", content: "hello" };
const parameters = {
  type: "object",
  properties: { x: { type: "integer" } },
  required: ["x"],
  additionalProperties: false,
};

async function chat() {
  const tools = [{ type: "function", function: { name: "mine", parameters, strict: true } }];
  const request = { model, tools, stream_options: { include_usage: true } };
  const stream = client.chat.completions.stream({ ...request, messages: [userMessage] });
  const [pieces, ids] = [[], new Set()];
  let note = null;
  stream.on("content", (piece) => pieces.push(piece));
  stream.on("chunk", (chunk) => {
    ids.add(chunk.id);
    note = chunk.toolgate ?? note;
  });
  const answer = await stream.finalChatCompletion();
  const [{ message, finish_reason }] = answer.choices;
  const [call] = message.tool_calls;
  const result = { role: "tool", tool_call_id: call.id, content: "mine says 7" };
  const again = client.chat.completions.stream({ ...request, messages: [userMessage, message, result] });
  return {
    text: message.content,
    pieces: pieces.join(""),
    last: await again.finalContent(),
    note,
    call: [call.id, call.function.name, JSON.parse(call.function.arguments)],
    finish: finish_reason,
    same_id: ids.size === 1 && ids.has(answer.id),
    tokens: answer.usage.prompt_tokens,
  };
}

async function responses() {
  const tools = [{ type: "function", name: "mine", parameters, strict: true }];
  const stream = client.responses.stream({ model, input: [userMessage], tools });
  const [pieces, numbers] = [[], []];
  stream.on("response.output_text.delta", (event) => pieces.push(event.delta));
  stream.on("event", (event) => {
    if (event.type.startsWith("response.")) numbers.push(event.sequence_number);
  });
  const answer = await stream.finalResponse();
  const [call] = answer.output.filter((item) => item.type === "function_call");
  const result = { type: "function_call_output", call_id: call.call_id, output: "mine says 7" };
  const history = answer.output.map(({ parsed_arguments, ...item }) => item);
  for (const item of history) for (const part of item.content ?? []) delete part.parsed;
  const again = client.responses.stream({ model, input: [userMessage, ...history, result], tools });
  return {
    text: answer.output_text,
    pieces: pieces.join(""),
    last: (await again.finalResponse()).output_text,
    note: answer.toolgate,
    call: [call.call_id, call.name, JSON.parse(call.arguments)],
    finish: answer.status,
    same_id: numbers.every((number, index) => number === index),
    tokens: answer.usage.input_tokens,
    kinds: answer.output.map((item) => item.type),
    ids: new Set(answer.output.map((item) => item.id)).size === answer.output.length,
  };
}

const results = { chat: await chat() };
// This helper rejects unknown events.
if (events !== "on") results.responses = await responses();
console.log(JSON.stringify(results));
