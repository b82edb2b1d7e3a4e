"""The scenes that every client runs, and how it reports the results.

Every client is started as `CLIENT.py BASE_URL API_KEY MODEL`, where the base URL has no `/v1`, and
prints one JSON object with the results of each scene for every supported API. Streamed scenes
report the number of text deltas as `pieces`; `tokens` are input and output tokens.
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


def failing_prompt(status: int) -> str:
    """Returns a prompt that the model refuses with this status."""
    return f"fail {status}"


def add(name: str, arguments: dict) -> str:
    """The only tool."""
    assert name == "add", name
    return str(arguments["a"] + arguments["b"])


def describe_error(error: Exception) -> dict:
    """Describes an error as the client reports it."""
    return {
        "class": type(error).__name__,
        "status": error.status_code,
        "message": getattr(error, "message", str(error)),
    }


def refusals(send) -> dict:
    """Returns the error that the client raises for each status."""
    results = {}
    for status in STATUSES:
        try:
            send(failing_prompt(status))
        except Exception as error:
            results[status] = describe_error(error)
    return results


async def async_refusals(send) -> dict:
    results = {}
    for status in STATUSES:
        try:
            await send(failing_prompt(status))
        except Exception as error:
            results[status] = describe_error(error)
    return results


def report(results: dict) -> None:
    print(json.dumps(results))
