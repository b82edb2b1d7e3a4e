"""A real MCP client (the Python SDK) that uses a gateway in every way it can, and says what it saw.

Usage: client.py URL MODE, where MODE is `legacy`, `auto` or a protocol version.
"""

import asyncio
import json
import sys

from mcp import Client
from mcp.types import ElicitResult


async def main(url: str, mode: str) -> None:
    progress: list[float] = []

    async def on_progress(done, total, message):
        progress.append(done)

    async def on_elicit(context, params):
        return ElicitResult(action="accept", content={})

    async with Client(url, mode=mode, elicitation_callback=on_elicit) as client:
        tools = (await client.list_tools()).tools
        added = await client.call_tool("zoo_add", {"a": 1, "b": 2})
        await client.call_tool("zoo_progress", {"steps": 3}, progress_callback=on_progress)
        failed = await client.call_tool("zoo_fail", {})
        resources = (await client.list_resources()).resources
        texts = [r for r in resources if str(r.uri).endswith("zoo://text")]
        read = await client.read_resource(str(texts[0].uri))
        templates = (await client.list_resource_templates()).resource_templates
        prompts = (await client.list_prompts()).prompts
        greeting = await client.get_prompt("zoo.greet", {"who": "Ada"})
        seen = {
            "tools": sorted(tool.name for tool in tools),
            "added": added.content[0].text,
            "progress": progress,
            "failed": failed.is_error,
            "read": str(read.contents[0].uri),
            "templates": [template.uri_template for template in templates],
            "prompts": sorted(prompt.name for prompt in prompts),
            "greeting": greeting.messages[0].content.text,
        }
        print(json.dumps(seen))


asyncio.run(main(sys.argv[1], sys.argv[2]))
