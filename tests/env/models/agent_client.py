"""The OpenAI and Anthropic SDKs read an agent run with their stream helpers.

Usage: `agent_client.py GATEWAY_URL PROVIDER on|off`; the last argument enables the gateway's tool
call events. The run ends with a call of a client tool, which this program answers. Prints one JSON
object with the result of each helper, including the final answer.
"""

import json
import sys

from anthropic import Anthropic
from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

GATEWAY, PROVIDER, EVENTS = sys.argv[1:]
MODEL = f"{PROVIDER}/m"
HEADERS = {"x-toolgate-events": EVENTS}
USER_MESSAGE = {"role": "user", "content": "hello"}

openai = OpenAI(base_url=f"{GATEWAY}/v1", api_key="none", max_retries=0, default_headers=HEADERS)
anthropic = Anthropic(base_url=GATEWAY, api_key="none", max_retries=0, default_headers=HEADERS)


class Mine(BaseModel):
    """A client tool."""

    x: int


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"],
          "additionalProperties": False}


def chat() -> dict:
    tool, pieces, ids, note = pydantic_function_tool(Mine, name="mine"), [], set(), None
    request = {"model": MODEL, "tools": [tool], "stream_options": {"include_usage": True}}
    with openai.chat.completions.stream(messages=[USER_MESSAGE], **request) as stream:
        for event in stream:
            if event.type == "content.delta":
                pieces.append(event.delta)
            elif event.type == "chunk":
                ids.add(event.chunk.id)
                note = (event.chunk.model_extra or {}).get("toolgate", note)
        answer = stream.get_final_completion()
    message = answer.choices[0].message
    (call,) = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "mine says 7"}
    with openai.chat.completions.stream(messages=[USER_MESSAGE, message, result], **request) as stream:
        last = stream.get_final_completion().choices[0].message.content
    return {
        "text": message.content, "pieces": "".join(pieces), "last": last, "note": note,
        "call": [call.id, call.function.name, json.loads(call.function.arguments)],
        "finish": answer.choices[0].finish_reason, "same_id": ids == {answer.id},
        "tokens": answer.usage.prompt_tokens,
    }


def responses() -> dict:
    tool, pieces, numbers = {"type": "function", "name": "mine", "parameters": SCHEMA, "strict": True}, [], []
    with openai.responses.stream(model=MODEL, input=[USER_MESSAGE], tools=[tool]) as stream:
        for event in stream:
            if event.type.startswith("response."):
                numbers.append(event.sequence_number)
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
        answer = stream.get_final_response()
    (call,) = [item for item in answer.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "mine says 7"}
    history = [USER_MESSAGE, *(item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output)]
    for item in history:
        for part in item.get("content", []) if isinstance(item.get("content"), list) else []:
            part.pop("parsed", None)
    with openai.responses.stream(model=MODEL, input=[*history, result], tools=[tool]) as stream:
        last = stream.get_final_response().output_text
    return {
        "text": answer.output_text, "pieces": "".join(pieces), "last": last,
        "note": answer.model_extra["toolgate"], "call": [call.call_id, call.name, json.loads(call.arguments)],
        "finish": answer.status, "same_id": numbers == list(range(len(numbers))),
        "tokens": answer.usage.input_tokens, "kinds": [item.type for item in answer.output],
        "ids": len({item.id for item in answer.output}) == len(answer.output),
    }


def messages() -> dict:
    tool, pieces, note = {"name": "mine", "input_schema": SCHEMA}, [], None
    request = {"model": MODEL, "max_tokens": 100, "tools": [tool]}
    with anthropic.messages.stream(messages=[USER_MESSAGE], **request) as stream:
        for event in stream:
            if event.type == "text":
                pieces.append(event.text)
            elif event.type == "message_delta":
                note = (event.model_extra or {}).get("toolgate", note)
        answer = stream.get_final_message()
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "mine says 7"}
    conversation = [USER_MESSAGE, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    with anthropic.messages.stream(messages=conversation, **request) as stream:
        last = stream.get_final_text()
    return {
        "text": "".join(block.text for block in answer.content if block.type == "text"),
        "pieces": "".join(pieces), "last": last, "note": note, "call": [call.id, call.name, call.input],
        "finish": answer.stop_reason, "same_id": answer.id.startswith("msg_"),
        "tokens": answer.usage.input_tokens, "kinds": [block.type for block in answer.content],
    }


print(json.dumps({scene.__name__: scene() for scene in [chat, responses, messages]}))
