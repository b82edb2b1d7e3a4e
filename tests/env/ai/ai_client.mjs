// The Vercel AI SDK with each provider that supports a base URL. See `scene.mjs`.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";
import { add, addSchema, apiKey, baseURL, greet, model, question, refusals, report } from "./scene.mjs";

const settings = { baseURL: `${baseURL}/v1`, apiKey };
const openai = createOpenAI(settings);
const anthropic = createAnthropic(settings);
const compatible = createOpenAICompatible({ ...settings, name: "gateway", includeUsage: true });

const tokens = ({ inputTokens, outputTokens }) => [inputTokens, outputTokens];

async function scenes(model) {
  const plain = await generateText({ model, prompt: greet, maxRetries: 0 });
  const stream = streamText({ model, prompt: greet, maxRetries: 0 });
  const pieces = [];
  for await (const piece of stream.textStream) pieces.push(piece);

  const called = [];
  const request = {
    model,
    prompt: question,
    maxRetries: 0,
    stopWhen: isStepCount(5),
    tools: {
      add: tool({
        description: "Adds.",
        inputSchema: jsonSchema(addSchema),
        execute: (args) => {
          called.push(["add", args]);
          return add("add", args);
        },
      }),
    },
  };
  const tools = await generateText(request);
  const calledOnce = called.splice(0);
  const toolsStreamed = streamText(request);
  return {
    plain: { text: plain.text, finish: plain.finishReason, tokens: tokens(plain.usage) },
    streamed: { text: pieces.join(""), pieces: pieces.length, tokens: tokens(await stream.usage) },
    tools: { called: calledOnce, text: tools.text },
    tools_streamed: { text: await toolsStreamed.text, called },
    refusals: await refusals((prompt) => generateText({ model, prompt, maxRetries: 0 })),
  };
}

report({
  compatible: await scenes(compatible(model)),
  chat: await scenes(openai.chat(model)),
  responses: await scenes(openai.responses(model)),
  messages: await scenes(anthropic(model)),
});
