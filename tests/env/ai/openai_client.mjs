// The OpenAI SDK for Node: Chat Completions and Responses. See `scene.mjs`.

import OpenAI from "openai";
import { add, addSchema, apiKey, baseURL, greet, model, question, refusals, report } from "./scene.mjs";

const client = new OpenAI({ baseURL: `${baseURL}/v1`, apiKey, maxRetries: 0 });
const user = (content) => ({ role: "user", content });
const parameters = { name: "add", description: "Adds.", parameters: addSchema };

const chat = {
  tokens: (usage) => [usage.prompt_tokens, usage.completion_tokens],

  async plain(text = greet) {
    const answer = await client.chat.completions.create({ model, messages: [user(text)] });
    const [choice] = answer.choices;
    return {
      text: choice.message.content,
      finish: choice.finish_reason,
      tokens: chat.tokens(answer.usage),
    };
  },

  async streamed() {
    const stream = client.chat.completions.stream({
      model,
      messages: [user(greet)],
      stream_options: { include_usage: true },
    });
    let pieces = 0;
    stream.on("content", () => (pieces += 1));
    const answer = await stream.finalChatCompletion();
    return {
      text: answer.choices[0].message.content,
      pieces,
      tokens: chat.tokens(answer.usage),
    };
  },

  async tools(next) {
    const [messages, called] = [[user(question)], []];
    for (;;) {
      const message = await next({ model, messages, tools: [{ type: "function", function: parameters }] });
      if (!message.tool_calls?.length) return { called, text: message.content };
      messages.push(message);
      for (const { id, function: { name, arguments: text } } of message.tool_calls) {
        called.push([name, JSON.parse(text)]);
        messages.push({ role: "tool", tool_call_id: id, content: add(name, JSON.parse(text)) });
      }
    }
  },

  notStreamed: async (request) => (await client.chat.completions.create(request)).choices[0].message,
  fromStream: (request) => client.chat.completions.stream(request).finalMessage(),
};

const responses = {
  tokens: (usage) => [usage.input_tokens, usage.output_tokens],

  async plain(text = greet) {
    const answer = await client.responses.create({ model, input: text });
    return { text: answer.output_text, finish: answer.status, tokens: responses.tokens(answer.usage) };
  },

  async streamed() {
    const stream = client.responses.stream({ model, input: greet });
    let pieces = 0;
    stream.on("response.output_text.delta", () => (pieces += 1));
    const answer = await stream.finalResponse();
    return { text: answer.output_text, pieces, tokens: responses.tokens(answer.usage) };
  },

  async tools(next) {
    const [input, called] = [[user(question)], []];
    for (;;) {
      const answer = await next({ model, input, tools: [{ type: "function", strict: true, ...parameters }] });
      input.push(...answer.output);
      const calls = answer.output.filter((item) => item.type === "function_call");
      if (!calls.length) return { called, text: answer.output_text };
      for (const { call_id, name, arguments: text } of calls) {
        called.push([name, JSON.parse(text)]);
        input.push({ type: "function_call_output", call_id, output: add(name, JSON.parse(text)) });
      }
    }
  },

  notStreamed: (request) => client.responses.create(request),
  fromStream: (request) => client.responses.stream(request).finalResponse(),
};

async function scenes(api) {
  return {
    plain: await api.plain(),
    streamed: await api.streamed(),
    tools: await api.tools(api.notStreamed),
    tools_streamed: await api.tools(api.fromStream),
    refusals: await refusals(api.plain),
  };
}

report({ chat: await scenes(chat), responses: await scenes(responses) });
