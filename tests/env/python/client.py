"""A real MCP client (the Python SDK) that exercises every feature through a gateway.

Usage: client.py TARGET KIND, where TARGET is a URL or, for a server on standard input and output, its
command as a JSON array, and KIND is `v1` for version 1 of the SDK, and for version 2 `legacy`,
`auto` or a protocol version. Prints one JSON object with the result or the error of each step.
"""

import json
import sys
import warnings
from contextlib import asynccontextmanager

import anyio
from mcp import StdioServerParameters, types

STEP_TIMEOUT = 30
USER = {"username": "ada", "email": "ada@example.com"}


@asynccontextmanager
async def connect(target, kind, **callbacks):
    if target.startswith("["):
        command, *arguments = json.loads(target)
        target = StdioServerParameters(command=command, args=arguments)
    if kind == "v1":
        from mcp import ClientSession

        async with open_v1(target) as (read, write, *_):
            async with ClientSession(read, write, **callbacks) as session:
                await session.initialize()
                yield session
    else:
        from mcp import Client

        async with Client(target, mode=kind, **callbacks) as client:
            yield client


def open_v1(target):
    from mcp import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    if isinstance(target, StdioServerParameters):
        return stdio_client(target)
    return streamable_http_client(target)


def wire(message):
    """Converts a message to its wire format: the SDK versions name its fields differently."""
    return message.model_dump(by_alias=True, exclude_none=True, mode="json")


def text(result):
    return wire(result)["content"][0]["text"]


class ClientRun:
    """The steps of one client run."""

    def __init__(self, client, kind, updates):
        self.client, self.kind, self.updates = client, kind, updates

    def tool(self, name):
        """Returns the gateway's name for a tool of the server."""
        return next(each for each in self.names if each.endswith(name))

    async def call(self, name, arguments=None, **options):
        return await self.client.call_tool(self.tool(name), arguments or {}, **options)

    async def tools(self):
        listed = wire(await self.client.list_tools())["tools"]
        self.names = sorted(tool["name"] for tool in listed)
        return self.names

    async def called(self):
        return text(await self.call("test_simple_text"))

    async def added(self):
        add_tools = [name for name in self.names if name.endswith("_add")]
        return {name: text(await self.call(name, {"a": 1, "b": 2})) for name in add_tools}

    async def failed(self):
        return wire(await self.call("test_error_handling"))["isError"]

    async def read(self):
        listed = wire(await self.client.list_resources())["resources"]
        self.uris = [resource["uri"] for resource in listed]
        uri = next(uri for uri in self.uris if uri.endswith("test://static-text"))
        return wire(await self.client.read_resource(uri))["contents"][0]

    async def template(self):
        listed = wire(await self.client.list_resource_templates())["resourceTemplates"]
        templates = (template["uriTemplate"] for template in listed)
        template = next(each for each in templates if "test://template" in each)
        return wire(await self.client.read_resource(template.replace("{id}", "7")))["contents"][0]["uri"]

    async def prompt(self):
        listed = wire(await self.client.list_prompts())["prompts"]
        names = (prompt["name"] for prompt in listed)
        name = next(each for each in names if each.endswith("test_prompt_with_arguments"))
        got = await self.client.get_prompt(name, {"arg1": "one", "arg2": "two"})
        return {"name": name, "text": wire(got)["messages"][0]["content"]["text"]}

    async def progress(self):
        reported = []

        async def on_progress(done, total, message):
            reported.append(int(done))

        await self.call("test_tool_with_progress", progress_callback=on_progress)
        await wait_until(lambda: len(reported) == 3)
        return reported

    async def elicited(self):
        return text(await self.call("test_elicitation", {"message": "Who are you?"}))

    async def sampled(self):
        return text(await self.call("test_sampling", {"prompt": "The capital of France?"}))

    async def updated(self):
        """Returns the URI in the update notification of a subscribed resource."""
        uri = next(uri for uri in self.uris if uri.endswith("test://watched-resource"))
        async with self.subscribed(uri):
            # Legacy clients open their notification stream at any time: it may not exist yet.
            while not self.updates:
                await self.call("test_trigger_resource_update")
                with anyio.move_on_after(1):
                    await wait_until(lambda: self.updates)
        return self.updates[0]

    @asynccontextmanager
    async def subscribed(self, uri):
        if getattr(self.client, "protocol_version", "") >= "2026":
            async with self.client.listen(resource_subscriptions=[uri]):
                yield
        else:
            await self.client.subscribe_resource(uri)
            yield
            await self.client.unsubscribe_resource(uri)

    async def cancelled(self):
        """Returns whether the server received the cancellation of a call."""
        before = await self.cancellations()
        running = anyio.Event()

        async def on_progress(done, total, message):
            running.set()

        async def wait():
            await self.call("test_wait_for_cancellation", progress_callback=on_progress)

        async with anyio.create_task_group() as calls:
            number = getattr(self.client, "_request_id", None)
            calls.start_soon(wait)
            await running.wait()
            if self.kind == "v1":
                # Version 1 does not send the cancellation by itself.
                params = types.CancelledNotificationParams(requestId=number)
                notification = types.CancelledNotification(method="notifications/cancelled", params=params)
                await self.client.send_notification(types.ClientNotification(notification))
            calls.cancel_scope.cancel()
        while await self.cancellations() == before:
            await anyio.sleep(0.05)
        return True

    async def cancellations(self):
        return int(text(await self.call("test_count_cancellations")))


async def wait_until(condition):
    while not condition():
        await anyio.sleep(0.01)


STEPS = [
    ClientRun.tools,
    ClientRun.called,
    ClientRun.added,
    ClientRun.failed,
    ClientRun.read,
    ClientRun.template,
    ClientRun.prompt,
    ClientRun.progress,
    ClientRun.elicited,
    ClientRun.sampled,
    ClientRun.updated,
    ClientRun.cancelled,
]


async def main(target, kind):
    updates, results = [], {}

    async def on_message(message):
        message = getattr(message, "root", message)
        if isinstance(message, types.ResourceUpdatedNotification):
            updates.append(str(message.params.uri))

    async def on_elicit(context, params):
        requested = wire(params)["requestedSchema"].get("properties", {})
        content = {name: value for name, value in USER.items() if name in requested}
        return types.ElicitResult(action="accept", content=content)

    async def on_sample(context, params):
        content = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=content, model="test")

    async with connect(
        target,
        kind,
        message_handler=on_message,
        elicitation_callback=on_elicit,
        sampling_callback=on_sample,
    ) as client:
        run = ClientRun(client, kind, updates)
        for step in STEPS:
            try:
                with anyio.fail_after(STEP_TIMEOUT):
                    results[step.__name__] = await step(run)
            except Exception as error:
                results[step.__name__] = f"failed: {error!r}"
        print(json.dumps(results), flush=True)


warnings.simplefilter("ignore")
anyio.run(main, sys.argv[1], sys.argv[2])
