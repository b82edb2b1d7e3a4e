"""A real MCP client (the Python SDK) that lists everything and uses all of it.

Usage: lists.py KIND URL..., where KIND is `v1` for version 1 of the SDK, and for version 2 `legacy`, `auto`
or a protocol version. Prints one JSON object: for each URL, the keys of each list or the error of the SDK, and
the errors of uses.
"""

import json
import sys
import warnings
from contextlib import asynccontextmanager

import anyio


@asynccontextmanager
async def connect(url, kind):
    if kind == "v1":
        from mcp import ClientSession
        from mcp.client.streamable_http import streamable_http_client

        async with streamable_http_client(url) as (read, write, _):
            async with ClientSession(read, write) as session:
                await session.initialize()
                yield session
    else:
        from mcp import Client

        async with Client(url, mode=kind) as client:
            yield client


def wire(message):
    """Converts a message to its wire format: the SDK versions name its fields differently."""
    return message.model_dump(by_alias=True, exclude_none=True, mode="json")


async def use_lists(client):
    results = {"errors": {}}

    async def use(list_name, key, request, use_item):
        try:
            results[list_name] = sorted(item[key] for item in wire(await request())[list_name])
        except Exception as error:
            results[list_name] = repr(error)
            return
        for name in results[list_name]:
            try:
                result = await use_item(name)
                if wire(result).get("isError"):
                    results["errors"][name] = repr(result)
            except Exception as error:
                results["errors"][name] = repr(error)

    async def read_template(template):
        return await client.read_resource(template.replace("{", "").replace("}", ""))

    async def call(name):
        return await client.call_tool(name, {})

    await use("tools", "name", client.list_tools, call)
    await use("resources", "uri", client.list_resources, client.read_resource)
    await use("resourceTemplates", "uriTemplate", client.list_resource_templates, read_template)
    await use("prompts", "name", client.list_prompts, client.get_prompt)
    return results


async def main(kind, urls):
    results = {}
    for url in urls:
        async with connect(url, kind) as client:
            results[url] = await use_lists(client)
    print(json.dumps(results), flush=True)


warnings.simplefilter("ignore")
anyio.run(main, sys.argv[1], sys.argv[2:])
