"""The OpenAI Agents SDK, which cannot run tools that it does not know. See `scene.py`."""

import asyncio

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

import scene

set_tracing_disabled(True)


async def run(model_class, inject: str) -> str:
    client = AsyncOpenAI(base_url=f"{scene.BASE_URL}/v1", api_key=scene.API_KEY, max_retries=0,
                         default_headers={"x-toolgate-inject": inject})
    agent = Agent(name="talker", model=model_class(scene.MODEL, openai_client=client))
    try:
        return (await Runner.run(agent, scene.GREET)).final_output
    except Exception as error:
        return type(error).__name__


async def main() -> None:
    models = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}
    scene.report({name: {inject: await run(model, inject) for inject in ["all", "auto", "none"]}
                  for name, model in models.items()})


asyncio.run(main())
