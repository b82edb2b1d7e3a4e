"""The Anthropic SDK: Messages, raw and with its stream helper. See `scene.py`."""

from anthropic import Anthropic

import scene
from scene import ADD, GREET, MODEL

client = Anthropic(base_url=scene.BASE_URL, api_key=scene.API_KEY, max_retries=0)
TOOL = {"name": "add", "description": "Adds.", "input_schema": scene.ADD_SCHEMA}


def request(text: str) -> dict:
    return {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": text}]}


def tokens(usage) -> list[int]:
    return [usage.input_tokens, usage.output_tokens]


def plain(text: str = GREET) -> dict:
    answer = client.messages.create(**request(text))
    return {"text": answer.content[0].text, "finish": answer.stop_reason,
            "tokens": tokens(answer.usage)}


def streamed() -> dict:
    pieces, usage_tokens = [], [None, None]
    for event in client.messages.create(**request(GREET), stream=True):
        if event.type == "message_start":
            usage_tokens[0] = event.message.usage.input_tokens
        elif event.type == "content_block_delta":
            pieces.append(event.delta.text)
        elif event.type == "message_delta":
            # The output tokens are known only at the end.
            usage_tokens = [event.usage.input_tokens or usage_tokens[0], event.usage.output_tokens]
    return {"text": "".join(pieces), "pieces": len(pieces), "tokens": usage_tokens}


def helper() -> dict:
    with client.messages.stream(**request(GREET)) as stream:
        pieces = list(stream.text_stream)
        answer = stream.get_final_message()
    assert "".join(pieces) == answer.content[0].text
    return {"text": answer.content[0].text, "pieces": len(pieces), "tokens": tokens(answer.usage)}


def run_tools(next_message) -> dict:
    message_request, called = request(ADD), []
    while (answer := next_message(**message_request, tools=[TOOL])).stop_reason == "tool_use":
        results = []
        for block in answer.content:
            if block.type == "tool_use":
                called.append([block.name, block.input])
                results.append({"type": "tool_result", "tool_use_id": block.id,
                                "content": scene.add(block.name, block.input)})
        message_request["messages"] += [
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": results},
        ]
    return {"called": called, "text": answer.content[0].text}


def from_stream(**message_request):
    with client.messages.stream(**message_request) as stream:
        return stream.get_final_message()


scene.report({
    "messages": {
        "plain": plain(),
        "streamed": streamed(),
        "helper": helper(),
        "tools": run_tools(client.messages.create),
        "tools_streamed": run_tools(from_stream),
        "refusals": scene.refusals(plain),
    }
})
