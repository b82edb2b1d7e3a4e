"""The endpoints besides the three APIs, with OpenAI's and Anthropic's SDKs. See `scene.py`."""

import sys

from anthropic import Anthropic, beta_tool
from openai import NotFoundError, OpenAI

import scene

PREFIXED = OpenAI(base_url=f"{scene.BASE_URL}/openai", api_key=scene.API_KEY, max_retries=0)
OTHER = OpenAI(base_url=f"{scene.BASE_URL}/v1", api_key=sys.argv[4], max_retries=0)


def openai(client: OpenAI) -> dict:
    model = scene.MODEL
    speech = client.audio.speech.create(model=model, voice="alloy", input="hello")
    stream = client.completions.create(model=model, prompt="hello", stream=True)
    audio = ("a.mp3", b"ID3\xff\r\n--\x00", "audio/mpeg")
    return {
        "embedding": client.embeddings.create(model=model, input="hi").data[0].embedding,
        "completion": client.completions.create(model=model, prompt="hello").choices[0].text,
        "streamed": "".join(chunk.choices[0].text for chunk in stream),
        "flagged": client.moderations.create(model=model, input="hi").results[0].flagged,
        "image": client.images.generate(model=model, prompt="a cat").data[0].b64_json,
        "edited": client.images.edit(model=model, prompt="a dog", image=[audio, audio]).data[0].b64_json,
        "speech": len(speech.read()),
        "text": client.audio.transcriptions.create(model=model, file=audio).text,
        "translated": client.audio.translations.create(model=model, file=audio).text,
        "retrieved": client.models.retrieve(model).id,
    }


def stored(client: OpenAI) -> dict:
    created = client.responses.create(model=scene.MODEL, input="hello")
    try:
        OTHER.responses.retrieve(created.id)
        other = "found"
    except NotFoundError:
        other = "not found"
    results = {
        "same id": client.responses.retrieve(created.id).id == created.id,
        "items": [item.role for item in client.responses.input_items.list(created.id)],
        "tokens": client.responses.input_tokens.count(model=scene.MODEL, input="hello").input_tokens > 0,
        "other key": other,
    }
    client.responses.delete(created.id)
    try:
        client.responses.retrieve(created.id)
    except NotFoundError:
        results["deleted"] = True
    return results


@beta_tool
def add(a: int, b: int) -> str:
    """Adds."""
    return str(a + b)


def anthropic() -> dict:
    client = Anthropic(base_url=f"{scene.BASE_URL}/anthropic", api_key=scene.API_KEY, max_retries=0)
    messages = [{"role": "user", "content": scene.ADD}]
    counted = client.messages.count_tokens(model=scene.MODEL, messages=messages)
    runner = client.beta.messages.tool_runner(
        model=scene.MODEL, max_tokens=100, messages=messages, tools=[add])
    return {"tokens": counted.input_tokens > 0, "text": runner.until_done().content[0].text}


scene.report({"openai": openai(PREFIXED), "stored": stored(PREFIXED), "anthropic": anthropic()})
