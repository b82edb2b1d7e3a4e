"""LangChain over Chat Completions and Responses. See `scene.py`."""

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

import scene
from scene import ADD, GREET


@tool
def add(a: int, b: int) -> str:
    """Adds."""
    return scene.add("add", {"a": a, "b": b})


def tokens(message) -> list[int]:
    return [message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"]]


def tool_results(messages) -> dict:
    calls = [call for message in messages if isinstance(message, AIMessage)
             for call in message.tool_calls]
    return {"called": [[call["name"], call["args"]] for call in calls], "text": messages[-1].text}


def scenes(**settings) -> dict:
    model = ChatOpenAI(base_url=f"{scene.BASE_URL}/v1", api_key=scene.API_KEY, model=scene.MODEL,
                       max_retries=0, stream_usage=True, **settings)
    plain = model.invoke(GREET)
    chunks = list(model.stream(GREET))
    combined = chunks[0]
    for chunk in chunks[1:]:
        combined += chunk
    agent = create_agent(model, tools=[add])
    request = {"messages": [("user", ADD)]}
    *_, last = agent.stream(request, stream_mode=["messages", "values"])
    return {
        "plain": {"text": plain.text, "tokens": tokens(plain)},
        "streamed": {"text": combined.text, "pieces": sum(1 for chunk in chunks if chunk.text),
                     "tokens": tokens(combined)},
        "tools": tool_results(agent.invoke(request)["messages"]),
        "tools_streamed": tool_results(last[1]["messages"]),
        "refusals": scene.refusals(model.invoke),
    }


scene.report({"chat": scenes(use_responses_api=False), "responses": scenes(use_responses_api=True)})
