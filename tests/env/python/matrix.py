"""A real MCP client (the Python SDK or FastMCP) that uses each feature of several servers and reports the results.

Usage: matrix.py KIND PLAN, where KIND is `v1` for version 1 of the SDK, `v2` for version 2 and `fastmcp`, and PLAN
is a JSON object: for each run, `servers` has the addresses of `fixtures` and, if they are checked, of `everything` and
`odd`. An address is a URL or, for a server on standard input and output, its command as a list. `log` is the file in
which the fixtures log requests, and `missing` lists features that are expected not to work.
Prints one JSON object: for each run and feature `{"result": …}` or `{"error": …}`. All runs take place at once.
"""

import json
import sys
import warnings
from contextlib import asynccontextmanager

import anyio
from mcp import StdioServerParameters, types

STEP_TIMEOUT = 60
# Seconds to wait for notifications; without hope, a failure is only confirmed.
PATIENCE, BRIEF_PATIENCE = 30, 2
USER = {"username": "ada", "email": "ada@example.com"}
ROOT = "file:///home/ada"
# Version 2 of the SDK refuses larger events unless told otherwise.
MAX_EVENT_BYTES = 8 * 1024 * 1024


def wire(message):
    """Converts a message to its wire format: the SDK versions name its fields differently."""
    return message.model_dump(by_alias=True, exclude_none=True, mode="json")


def text(result):
    return wire(result)["content"][0]["text"]


async def wait_until(condition):
    while not condition():
        await anyio.sleep(0.01)


def patience(run, feature):
    return BRIEF_PATIENCE if feature in run["missing"] else PATIENCE


class Events:
    """What a server sends to the client, and the client's answers."""

    def __init__(self):
        self.updates, self.logs, self.list_changes = [], [], 0

    async def on_message(self, message):
        message = getattr(message, "root", message)
        if isinstance(message, types.ResourceUpdatedNotification):
            self.updates.append(str(message.params.uri))
        elif isinstance(message, types.ToolListChangedNotification):
            self.list_changes += 1

    async def on_log(self, params):
        self.logs.append(params.data)

    async def on_elicit(self, context, params):
        requested = wire(params)["requestedSchema"].get("properties", {})
        content = {name: value for name, value in USER.items() if name in requested}
        return types.ElicitResult(action="accept", content=content)

    async def on_sample(self, context, params):
        content = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=content, model="test")

    async def on_roots(self, context):
        return types.ListRootsResult(roots=[types.Root(uri=ROOT)])


class FastMcp:
    """FastMCP's client under the names of the SDK."""

    def __init__(self, client):
        self.session, self.protocol_version = client.session, client.protocol_version
        self.list_tools, self.list_resources = client.list_tools_mcp, client.list_resources_mcp
        self.list_resource_templates = client.list_resource_templates_mcp
        self.list_prompts, self.get_prompt = client.list_prompts_mcp, client.get_prompt_mcp
        self.read_resource, self.complete = client.read_resource_mcp, client.complete_mcp
        self.set_logging_level = client.set_logging_level
        # FastMCP has no subscriptions of its own, but gives access to the session of the SDK.
        self.subscribe_resource = client.session.subscribe_resource
        self.unsubscribe_resource = client.session.unsubscribe_resource
        self._call = client.call_tool_mcp

    async def call_tool(self, name, arguments, progress_callback=None):
        return await self._call(name, arguments, progress_handler=progress_callback)

    def listen(self, **filters):
        from mcp.client.subscriptions import listen

        return listen(self.session, **filters)


def connect(kind, address, events):
    return {"v1": connect_v1, "v2": connect_v2, "fastmcp": connect_fastmcp}[kind](address, events)


def stdio(address):
    command, *arguments = address
    return StdioServerParameters(command=command, args=arguments)


@asynccontextmanager
async def connect_v1(address, events):
    from mcp import ClientSession, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    is_url = isinstance(address, str)
    transport = streamable_http_client(address) if is_url else stdio_client(stdio(address))
    async with transport as (read, write, *_):
        callbacks = {
            "message_handler": events.on_message,
            "logging_callback": events.on_log,
            "elicitation_callback": events.on_elicit,
            "sampling_callback": events.on_sample,
            "list_roots_callback": events.on_roots,
        }
        async with ClientSession(read, write, **callbacks) as session:
            await session.initialize()
            yield session


@asynccontextmanager
async def connect_v2(address, events):
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    is_url = isinstance(address, str)
    async with Client(
        streamable_http_client(address, max_sse_event_size=MAX_EVENT_BYTES) if is_url else stdio(address),
        mode="auto",
        log_level="info",
        message_handler=events.on_message,
        logging_callback=events.on_log,
        elicitation_callback=events.on_elicit,
        sampling_callback=events.on_sample,
        list_roots_callback=events.on_roots,
    ) as client:
        yield client


@asynccontextmanager
async def connect_fastmcp(address, events):
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    async def on_elicit(message, response_type, params, context):
        return await events.on_elicit(context, params)

    async def on_sample(messages, params, context):
        return await events.on_sample(context, params)

    is_url = isinstance(address, str)
    transport = address if is_url else StdioTransport(address[0], address[1:], keep_alive=False)
    async with Client(
        transport,
        message_handler=events.on_message,
        log_handler=events.on_log,
        elicitation_handler=on_elicit,
        sampling_handler=on_sample,
        roots=[ROOT],
    ) as client:
        yield FastMcp(client)


class Fixtures:
    """The features of the fixture server."""

    def __init__(self, client, kind, events, run):
        self.client, self.kind, self.events, self.run = client, kind, events, run
        self.is_modern = (getattr(client, "protocol_version", None) or "") >= "2026"

    def cancellations(self):
        with open(self.run["log"]) as log:
            return log.read().count("cancelled\n")

    async def call_text(self, name, arguments=None, **options):
        return text(await self.client.call_tool(name, arguments or {}, **options))

    async def names(self):
        return sorted(tool["name"] for tool in wire(await self.client.list_tools())["tools"])

    async def list(self):
        return await self.names()

    async def call(self):
        return await self.call_text("test_simple_text")

    async def structured(self):
        return wire(await self.client.call_tool("test_structured_output", {}))["structuredContent"]

    async def large(self):
        return len(await self.call_text("test_large_result"))

    async def progress(self):
        reported = []

        async def on_progress(done, total, message):
            reported.append(int(done))

        await self.client.call_tool("test_tool_with_progress", {}, progress_callback=on_progress)
        await wait_until(lambda: len(reported) == 3)
        return reported

    async def cancel(self):
        """Returns whether the server received the cancellation of a call."""
        before = self.cancellations()
        running = anyio.Event()

        async def on_progress(done, total, message):
            running.set()

        async def wait():
            await self.client.call_tool("test_wait_for_cancellation", {}, progress_callback=on_progress)

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
        await wait_until(lambda: self.cancellations() > before)
        return True

    async def elicitation(self):
        return await self.call_text("test_elicitation", {"message": "Who are you?"})

    async def sampling(self):
        return await self.call_text("test_sampling", {"prompt": "The capital of France?"})

    async def roots(self):
        return await self.call_text("test_input_required_result_list_roots")

    async def logging(self):
        if not self.is_modern:
            await self.client.set_logging_level("info")
        await self.call_text("test_tool_with_logging")
        with anyio.fail_after(patience(self.run, "logging")):
            await wait_until(lambda: len(set(self.events.logs)) >= 3)
        # Repetitions are not compared: one run through the gateway got the last message twice, under load.
        return list(dict.fromkeys(self.events.logs))

    async def resources(self):
        listed = wire(await self.client.list_resources())["resources"]
        uri = next(each["uri"] for each in listed if each["uri"] == "test://static-text")
        return wire(await self.client.read_resource(uri))["contents"]

    async def templates(self):
        listed = wire(await self.client.list_resource_templates())["resourceTemplates"]
        uri = listed[0]["uriTemplate"].replace("{id}", "7")
        return wire(await self.client.read_resource(uri))["contents"][0]["uri"]

    async def prompts(self):
        listed = wire(await self.client.list_prompts())["prompts"]
        name = next(each["name"] for each in listed if each["name"] == "test_prompt_with_arguments")
        got = await self.client.get_prompt(name, {"arg1": "one", "arg2": "two"})
        return wire(got)["messages"][0]["content"]["text"]

    async def completion(self):
        reference = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        done = await self.client.complete(reference, {"name": "arg1", "value": "par"})
        return wire(done)["completion"]["values"]

    async def subscribe(self):
        """Returns the URI in the update notification of a subscribed resource."""
        async with self.subscribed("test://watched-resource"):
            # Legacy clients open their notification stream at any time: it may not exist yet.
            with anyio.fail_after(patience(self.run, "subscribe")):
                while not self.events.updates:
                    await self.call_text("test_trigger_resource_update")
                    with anyio.move_on_after(1):
                        await wait_until(lambda: self.events.updates)
        return self.events.updates[0]

    @asynccontextmanager
    async def subscribed(self, uri):
        if self.is_modern:
            async with self.client.listen(resource_subscriptions=[uri]):
                yield
        else:
            await self.client.subscribe_resource(uri)
            yield
            await self.client.unsubscribe_resource(uri)

    async def list_changes(self):
        """Returns whether the list has another tool after the notification of its change."""
        with anyio.fail_after(patience(self.run, "list_changes")):
            if not self.is_modern:
                return await self.change_list()
            async with self.client.listen(tools_list_changed=True):
                return await self.change_list()

    async def change_list(self):
        is_added = "test_dynamic_tool" in await self.names()
        while not self.events.list_changes:
            await self.call_text("test_trigger_tool_change")
            is_added = not is_added
            with anyio.move_on_after(1):
                await wait_until(lambda: self.events.list_changes)
        while ("test_dynamic_tool" in await self.names()) != is_added:
            await anyio.sleep(0.05)
        return True


class Everything:
    """Features that the reference server has."""

    def __init__(self, client, kind, events, run):
        self.client, self.kind = client, kind

    async def capabilities(self):
        return sorted(tool["name"] for tool in wire(await self.client.list_tools())["tools"])

    async def tasks(self):
        name, arguments = "simulate-research-query", {"topic": "gateways"}
        if self.kind == "v1":
            tasks = self.client.experimental
            created = await tasks.call_tool_as_task(name, arguments)
            async for _ in tasks.poll_task(created.task.taskId):
                pass
            result = await tasks.get_task_result(created.task.taskId, types.CallToolResult)
        else:
            # Other clients do not know tasks; they can only call the tool.
            result = await self.client.call_tool(name, arguments)
        return text(result).splitlines()[0]


class Odd:
    """Lists with malformed definitions."""

    def __init__(self, client, kind, events, run):
        self.client, self.run = client, run

    async def malformed(self):
        # Version 1 of the SDK never answers if it cannot parse the list.
        with anyio.fail_after(patience(self.run, "malformed")):
            return {
                "tools": len(wire(await self.client.list_tools())["tools"]),
                "resources": len(wire(await self.client.list_resources())["resources"]),
                "resourceTemplates": len(wire(await self.client.list_resource_templates())["resourceTemplates"]),
                "prompts": len(wire(await self.client.list_prompts())["prompts"]),
            }


FEATURES = {
    "fixtures": (
        Fixtures,
        ["list", "call", "structured", "large", "progress", "cancel", "elicitation", "sampling", "roots", "logging"]
        + ["resources", "templates", "prompts", "completion", "subscribe", "list_changes"],
    ),
    "everything": (Everything, ["capabilities", "tasks"]),
    "odd": (Odd, ["malformed"]),
}


async def check(kind, run, server, results):
    group, features = FEATURES[server]
    events = Events()
    try:
        async with connect(kind, run["servers"][server], events) as client:
            checks = group(client, kind, events, run)
            for feature in features:
                try:
                    with anyio.fail_after(STEP_TIMEOUT):
                        results[feature] = {"result": await getattr(checks, feature)()}
                except Exception as error:
                    results[feature] = {"error": repr(error)}
    except BaseException as error:
        if isinstance(error, anyio.get_cancelled_exc_class()):
            raise
        for feature in features:
            results.setdefault(feature, {"error": f"no connection: {error!r}"})


async def main(kind, plan):
    results = {name: {} for name in plan}
    async with anyio.create_task_group() as checks:
        for name, run in plan.items():
            for server in run["servers"]:
                checks.start_soon(check, kind, run, server, results[name])
    print(json.dumps(results), flush=True)


warnings.simplefilter("ignore")
anyio.run(main, sys.argv[1], json.loads(sys.argv[2]))
