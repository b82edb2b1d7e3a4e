"""Pydantic AI over Chat Completions, Responses and Messages. See `scene.py`."""

import asyncio

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

import scene
from scene import ADD, GREET, MODEL

called = []


def add(a: int, b: int) -> str:
    """Adds."""
    called.append(["add", {"a": a, "b": b}])
    return scene.add("add", {"a": a, "b": b})


def tokens(usage) -> list[int]:
    return [usage.input_tokens, usage.output_tokens]


async def scenes(model) -> dict:
    talker, adder = Agent(model), Agent(model, tools=[add])
    plain = await talker.run(GREET)
    async with talker.run_stream(GREET) as stream:
        pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
        stream_tokens = tokens(stream.usage)
    called.clear()
    tools = await adder.run(ADD)
    called_once = called.copy()
    called.clear()

    async def streamed(context, events):
        async for _ in events:
            pass

    # With an event handler, every turn of the loop is streamed.
    tools_streamed = await adder.run(ADD, event_stream_handler=streamed)
    return {
        "plain": {"text": plain.output, "tokens": tokens(plain.usage)},
        "streamed": {"text": "".join(pieces), "pieces": len(pieces), "tokens": stream_tokens},
        "tools": {"called": called_once, "text": tools.output},
        "tools_streamed": {"called": called.copy(), "text": tools_streamed.output},
        "refusals": await scene.async_refusals(talker.run),
    }


async def main() -> None:
    openai = OpenAIProvider(openai_client=AsyncOpenAI(
        base_url=f"{scene.BASE_URL}/v1", api_key=scene.API_KEY, max_retries=0))
    anthropic = AnthropicProvider(anthropic_client=AsyncAnthropic(
        base_url=scene.BASE_URL, api_key=scene.API_KEY, max_retries=0))
    scene.report({
        "chat": await scenes(OpenAIChatModel(MODEL, provider=openai)),
        "responses": await scenes(OpenAIResponsesModel(MODEL, provider=openai)),
        "messages": await scenes(AnthropicModel(MODEL, provider=anthropic)),
    })


asyncio.run(main())
