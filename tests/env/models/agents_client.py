"""The OpenAI Agents SDK over Chat Completions and Responses. See `scene.py`."""

import asyncio

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

import scene
from scene import ADD, GREET

set_tracing_disabled(True)
called = []


@function_tool
def add(a: int, b: int) -> str:
    """Adds."""
    called.append(["add", {"a": a, "b": b}])
    return scene.add("add", {"a": a, "b": b})


def tokens(result) -> list[int]:
    usage = result.context_wrapper.usage
    return [usage.input_tokens, usage.output_tokens]


async def read_deltas(result) -> list[str]:
    """Returns the text deltas of a stream."""
    return [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event"
        and event.data.type == "response.output_text.delta"
    ]


async def scenes(model) -> dict:
    settings = ModelSettings(include_usage=True)
    talker = Agent(name="talker", model=model, model_settings=settings)
    adder = Agent(name="adder", model=model, model_settings=settings, tools=[add])
    plain = await Runner.run(talker, GREET)
    streamed = Runner.run_streamed(talker, GREET)
    pieces = await read_deltas(streamed)
    assert "".join(pieces) == streamed.final_output
    called.clear()
    tools = await Runner.run(adder, ADD)
    called_once = called.copy()
    called.clear()
    tools_streamed = Runner.run_streamed(adder, ADD)
    await read_deltas(tools_streamed)
    return {
        "plain": {"text": plain.final_output, "tokens": tokens(plain)},
        "streamed": {"text": streamed.final_output, "pieces": len(pieces),
                     "tokens": tokens(streamed)},
        "tools": {"called": called_once, "text": tools.final_output},
        "tools_streamed": {"called": called.copy(), "text": tools_streamed.final_output},
        "refusals": await scene.async_refusals(lambda text: Runner.run(talker, text)),
    }


async def main() -> None:
    client = AsyncOpenAI(base_url=f"{scene.BASE_URL}/v1", api_key=scene.API_KEY, max_retries=0)
    scene.report({
        "chat": await scenes(OpenAIChatCompletionsModel(scene.MODEL, openai_client=client)),
        "responses": await scenes(OpenAIResponsesModel(scene.MODEL, openai_client=client)),
    })


asyncio.run(main())
