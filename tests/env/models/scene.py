"""What every client asks a model, and how it tells what came back.

Every client is started as `CLIENT.py BASE_URL API_KEY MODEL`, where the base URL has no `/v1`, and
prints one JSON object: for every API it speaks, what it saw in each of the scenes. Streamed scenes
tell how many pieces the text came in; tokens are those that went in and those that came out.
"""

import json
import sys

BASE_URL, API_KEY, MODEL = sys.argv[1:4]

GREET = "Say hello."
ADD = "What is 1 + 2?"
INTRODUCE = "Who are you?"
STATUSES = [401, 404, 429]

ADD_SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


def failing(status: int) -> str:
    """What to ask for, to be refused with this status."""
    return f"fail {status}"


def add(name: str, arguments: dict) -> str:
    """The one tool there is."""
    assert name == "add", name
    return str(arguments["a"] + arguments["b"])


def told(error: Exception) -> dict:
    """A refusal, as the client has it."""
    return {
        "class": type(error).__name__,
        "status": error.status_code,
        "message": getattr(error, "message", str(error)),
    }


def refusals(ask) -> dict:
    """What the client raises for each status that it gets."""
    seen = {}
    for status in STATUSES:
        try:
            ask(failing(status))
        except Exception as error:
            seen[status] = told(error)
    return seen


async def async_refusals(ask) -> dict:
    seen = {}
    for status in STATUSES:
        try:
            await ask(failing(status))
        except Exception as error:
            seen[status] = told(error)
    return seen


def report(seen: dict) -> None:
    print(json.dumps(seen))
