"""The OpenAI SDK with a model that writes scripts (code mode).

Usage: `code_client.py GATEWAY_URL MODEL`. Prints one JSON object: the answer, and the gateway's
report of the agent run.
"""

import json
import sys

from openai import OpenAI

GATEWAY, MODEL = sys.argv[1:]

client = OpenAI(base_url=f"{GATEWAY}/v1", api_key="none", max_retries=0)
answer = client.chat.completions.create(
    model=MODEL,
    messages=[{"role": "user", "content": "Which notes mention a deadline? Remember each as an entity."}],
)
print(json.dumps({
    "text": answer.choices[0].message.content,
    "finish": answer.choices[0].finish_reason,
    "toolgate": answer.model_extra["toolgate"],
}))
