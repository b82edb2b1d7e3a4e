"""The OpenAI and Anthropic SDKs ask a real model for the weather and execute its tool calls.

Usage: `client.py GATEWAY_URL MODEL…`. Prints one JSON object with the results for each model.
The requests contain no tools: the gateway adds its own.
"""

import json
import sys

from anthropic import Anthropic
from openai import OpenAI

GATEWAY, *MODELS = sys.argv[1:]
MAX_TOKENS = 60

openai = OpenAI(base_url=f"{GATEWAY}/v1", api_key="none", max_retries=0)
anthropic = Anthropic(base_url=GATEWAY, api_key="none", max_retries=0)


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def execute(call: dict, form: str = "chat") -> dict:
    """Executes a tool call through the gateway."""
    path = "/mcp/tool/execute"
    return openai.post(path, cast_to=object, body=call, options={"params": {"format": form}})


def tool_call_result(name: str, arguments: dict, result: str, text: str) -> dict:
    return {"called": name, "arguments": arguments, "result": result, "text": text}


def plain(model: str) -> dict:
    answer = openai.chat.completions.create(model=model, max_tokens=MAX_TOKENS, messages=[user("Hello!")])
    return {"text": answer.choices[0].message.content, "tokens": answer.usage.completion_tokens}


def streamed(model: str) -> dict:
    chunks = openai.chat.completions.create(
        model=model, max_tokens=MAX_TOKENS, messages=[user("Hello!")], stream=True
    )
    choices = [choice for chunk in chunks for choice in chunk.choices]
    return {
        "text": "".join(choice.delta.content or "" for choice in choices),
        "chunks": len(choices),
        "finish": choices[-1].finish_reason,
    }


def chat(model: str) -> dict:
    messages = [user("What is the weather in Paris?")]

    def ask():
        answer = openai.chat.completions.create(model=model, max_tokens=MAX_TOKENS, messages=messages)
        return answer.choices[0].message

    message = ask()
    (call,) = message.tool_calls
    result = execute(call.model_dump())
    messages += [message, result]
    function = call.function
    return tool_call_result(function.name, json.loads(function.arguments), result["content"], ask().content)


def responses(model: str) -> dict:
    items = [user("What is the weather in Rome?")]

    def ask():
        return openai.responses.create(model=model, max_output_tokens=MAX_TOKENS, input=items)

    answer = ask()
    (call,) = [item for item in answer.output if item.type == "function_call"]
    result = execute(call.model_dump(), "responses")
    items += [*answer.output, result]
    return tool_call_result(call.name, json.loads(call.arguments), result["output"], ask().output_text)


def messages(model: str) -> dict:
    conversation = [user("What is the weather in London?")]

    def ask():
        return anthropic.messages.create(model=model, max_tokens=MAX_TOKENS, messages=conversation)

    answer = ask()
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    function = {"name": call.name, "arguments": json.dumps(call.input)}
    result = execute({"id": call.id, "type": "function", "function": function})["content"]
    block = {"type": "tool_result", "tool_use_id": call.id, "content": result}
    conversation += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [block]}]
    text = "".join(block.text for block in ask().content if block.type == "text")
    return tool_call_result(call.name, call.input, result, text)


scenes = [plain, streamed, chat, responses, messages]
print(json.dumps({model: {scene.__name__: scene(model) for scene in scenes} for model in MODELS}))
