"""The OpenAI and Anthropic SDKs ask a real model for the weather, and run the calls it asks for.

Started as `client.py GATEWAY_URL MODEL…`; prints one JSON object with what they saw of each model.
No request names a tool: those that the model knows of are the gateway's.
"""

import json
import sys

from anthropic import Anthropic
from openai import OpenAI

GATEWAY, *MODELS = sys.argv[1:]
ENOUGH = 60  # tokens

openai = OpenAI(base_url=f"{GATEWAY}/v1", api_key="none", max_retries=0)
anthropic = Anthropic(base_url=GATEWAY, api_key="none", max_retries=0)


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def run(call: dict, form: str = "chat") -> dict:
    """What the gateway answers when it is told to run a call."""
    path = "/mcp/tool/execute"
    return openai.post(path, cast_to=object, body=call, options={"params": {"format": form}})


def loop(name: str, arguments: dict, result: str, text: str) -> dict:
    return {"called": name, "arguments": arguments, "result": result, "text": text}


def plain(model: str) -> dict:
    answer = openai.chat.completions.create(model=model, max_tokens=ENOUGH, messages=[user("Hello!")])
    return {"text": answer.choices[0].message.content, "tokens": answer.usage.completion_tokens}


def streamed(model: str) -> dict:
    chunks = openai.chat.completions.create(
        model=model, max_tokens=ENOUGH, messages=[user("Hello!")], stream=True
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
        answer = openai.chat.completions.create(model=model, max_tokens=ENOUGH, messages=messages)
        return answer.choices[0].message

    message = ask()
    (call,) = message.tool_calls
    result = run(call.model_dump())
    messages += [message, result]
    function = call.function
    return loop(function.name, json.loads(function.arguments), result["content"], ask().content)


def responses(model: str) -> dict:
    items = [user("What is the weather in Rome?")]

    def ask():
        return openai.responses.create(model=model, max_output_tokens=ENOUGH, input=items)

    answer = ask()
    (call,) = [item for item in answer.output if item.type == "function_call"]
    result = run(call.model_dump(), "responses")
    items += [*answer.output, result]
    return loop(call.name, json.loads(call.arguments), result["output"], ask().output_text)


def messages(model: str) -> dict:
    said = [user("What is the weather in London?")]

    def ask():
        return anthropic.messages.create(model=model, max_tokens=ENOUGH, messages=said)

    answer = ask()
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    function = {"name": call.name, "arguments": json.dumps(call.input)}
    result = run({"id": call.id, "type": "function", "function": function})["content"]
    block = {"type": "tool_result", "tool_use_id": call.id, "content": result}
    said += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [block]}]
    text = "".join(block.text for block in ask().content if block.type == "text")
    return loop(call.name, call.input, result, text)


scenes = [plain, streamed, chat, responses, messages]
print(json.dumps({model: {scene.__name__: scene(model) for scene in scenes} for model in MODELS}))
