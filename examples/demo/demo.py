"""`make demo`: a model requests tools of two real MCP servers, and the gateway runs them.

Everything is local and temporary: a small model runs on this machine, ports are chosen freely, data
is in a temporary folder, and all started processes end with this script.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LLM = ROOT / "tests/env/llm"
SERVERS = [HERE / "servers/.venv/bin", HERE / "servers/node_modules/.bin"]
TIMEOUT_SECONDS = 120

# Questions to ask, and the tool calls that the scripted model makes if there is no real model.
QUESTIONS = [
    {
        "name": "clock",
        "text": "What time is it in Europe/Paris?",
        "call": ("time_get_current_time", {"timezone": "Europe/Paris"}),
        "why": "This tool may run automatically (tools_to_auto_execute), so the gateway runs it.",
    },
    {
        "name": "reader",
        "text": 'Read the file "notes.txt".',
        "call": ("files_read_text_file", {"path": "notes.txt"}),
        "why": "This tool may not run automatically, so the run waits for your decision.",
    },
]
NOTES = "The demo works: this line came from a file, through an MCP server.\n"

COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class Failed(Exception):
    """A problem that ends the demo, described for the user."""


def styled(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if COLOUR else text


def say(text: str = "", end: str = "\n") -> None:
    print(text, end=end, flush=True)


def title(text: str) -> None:
    say("\n" + styled("1;36", f"== {text}"))


def shorten(text: str, max_length: int = 100) -> str:
    text = " ".join(str(text).split())
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


class Programs:
    """The started processes. Leaving the `with` block stops them and their children, also on Ctrl-C."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.running = []

    def __enter__(self):
        return self

    def start(self, name: str, command: list, **more) -> subprocess.Popen:
        log = open(self.folder / f"{name}.log", "w")
        program = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            text=True, start_new_session=True, **more,
        )
        self.running.append(program)
        return program

    def url(self, program: subprocess.Popen, before: str) -> str:
        """Returns the URL that a program prints when it is ready."""
        for line in program.stdout:
            if line.startswith(before):
                return line[len(before):].strip()
        raise Failed(f"{program.args[0]} exited before it was ready")

    def __exit__(self, *_):
        # A second Ctrl-C would leave processes behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for program in reversed(self.running):
            program.terminate()
        for program in reversed(self.running):
            try:
                program.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()


def real_model(programs: Programs):
    """Starts the small model and returns its provider; None if it is not installed or does not start."""
    if not (LLM / ".venv/.installed").exists():
        return None
    say("starting SmolLM2, a local model with 135 million parameters …")
    program = programs.start("model", [LLM / ".venv/bin/python", LLM / "serve.py"])
    try:
        url = programs.url(program, "ready ")
    except Failed:
        return None
    for question in QUESTIONS:
        question["model"] = "local/smollm2"
    return provider("local", url, "smollm2")


def scripted_model(programs: Programs, binary: Path) -> str:
    """Starts one scripted model per question and returns their providers."""
    if not binary.exists():
        say("building the scripted model …")
        build = ["cargo", "build", "--release", "--locked", "--package", "toolgate-testkit", "--bin", "toolgate-model"]
        subprocess.run(build, cwd=ROOT, check=True)
    providers = ""
    for question in QUESTIONS:
        name, (tool, arguments) = question["name"], question["call"]
        text = "A real model would now summarize the tool result in its own words."
        command = [binary, "--call", tool, "--arguments", json.dumps(arguments), "--text", text]
        url = programs.url(programs.start(name, command), "listening on ")
        question["model"] = f"{name}/scripted"
        providers += provider(name, url, "scripted")
    return providers


def provider(name: str, url: str, model: str) -> str:
    return f'\n[providers.{name}]\nbase_url = "{url}/v1"\nmodels = ["{model}"]\n'


class Gateway:
    def __init__(self, programs: Programs, binary: Path, models: str):
        folder = programs.folder / "work"
        folder.mkdir()
        (folder / "notes.txt").write_text(NOTES)
        config = programs.folder / "toolgate.toml"
        config.write_text((HERE / "toolgate.toml").read_text() + models)
        path = os.pathsep.join([*map(str, SERVERS), os.environ["PATH"]])
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        command = [binary, "serve", "--port", "0", "--config", config, "--data-dir", programs.folder / "data"]
        # The gateway creates the directory in which it remembers trusted projects, to keep servers out of it.
        kept["XDG_DATA_HOME"] = str(programs.folder / "share")
        program = programs.start("gateway", command, cwd=folder, env={**kept, "PATH": path})
        self.url = programs.url(program, "listening on ")
        self.key = (programs.folder / "data/admin.key").read_text().strip()

    def open(self, path: str, body=None, **headers):
        data = None if body is None else json.dumps(body).encode()
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        headers |= {"content-type": "application/json", "authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(self.url + path, data, headers)
        # Connect directly: ignore proxy settings in the environment.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            return opener.open(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            raise Failed(f"{path} returned {error.code}: {error.read().decode()}") from error

    def get(self, path: str):
        with self.open(path) as response:
            return json.load(response)

    def wait_for_servers(self) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            clients = self.get("/api/mcp/clients")["clients"]
            unavailable = [client for client in clients if client["state"] != "healthy"]
            if not unavailable:
                return
            if time.monotonic() > deadline:
                reasons = [f"{client['config']['name']}: {client.get('reason')}" for client in unavailable]
                raise Failed("servers did not start: " + "; ".join(reasons))
            time.sleep(0.1)

    def show_stream(self, path: str, body: dict) -> dict:
        """Prints a streamed response as it arrives and returns its `toolgate` object."""
        note, spoke = None, False
        with self.open(path, body, x_toolgate_events="on") as stream:
            for line in stream:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[len(b"data: "):])
                kind = event.get("type", "")
                if kind == "toolgate.tool_call.started":
                    say(f"{chr(10) if spoke else ''}  {styled('33', 'tool  ')} {event['name']} {event['arguments']}")
                    spoke = False
                for choice in event.get("choices", []):
                    if text := choice["delta"].get("content"):
                        text = text if spoke else f"  {styled('32', 'model ')} {text.lstrip()}"
                        say(text.replace("\n", "\n" + " " * 9), end="")
                        spoke = True
                if "error" in event:
                    raise Failed(event["error"]["message"])
                note = event.get("toolgate", note)
        say() if spoke else None
        return note


def ask(gateway: Gateway, question: dict) -> str:
    """Asks a question, decides its pending calls, and returns the run's id."""
    title(f"You ask: {question['text']}")
    say(question["why"])
    body = {"model": question["model"], "stream": True, "max_tokens": 80,
            "messages": [{"role": "user", "content": question["text"]}]}
    note = gateway.show_stream("/v1/chat/completions", body)
    while note["pending"]:
        decisions = [decide(call) for call in note["pending"]]
        note = gateway.show_stream(f"/api/runs/{note['run_id']}/resume", {"decisions": decisions, "stream": True})
    for call in note["executed"]:
        say(f"  {styled('33', 'result')} {call['name']}: {shorten(call['result'])} ({call['ms']} ms)")
    if not note["executed"]:
        say("  The model answered without a tool this time, as small models sometimes do.")
    return note["run_id"]


def decide(call: dict) -> dict:
    asked = f"  {styled('35', 'waits ')} {call['name']} {call['arguments']}"
    if not sys.stdin.isatty():
        say(f"{asked}\n         not on a terminal, so the demo approves it")
        return {"id": call["id"], "decision": "approve"}
    answer = input(f"{asked}\n         Run it? [Y/n] ")
    if answer.strip().lower() in ("", "y", "yes"):
        return {"id": call["id"], "decision": "approve"}
    return {"id": call["id"], "decision": "deny", "reason": "denied by the user"}


def show_timeline(gateway: Gateway, run_id: str) -> None:
    run = gateway.get(f"/api/runs/{run_id}")
    moment = lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    start = moment(run["started_at"])
    title(f"Journal of {run_id}")
    for entry in run["timeline"]:
        step = entry["step"]
        say(f"  {round((moment(entry['at']) - start) * 1000):>6} ms  {step['kind']:<12} {describe_step(step)}")
    turns = sum(entry["step"]["kind"] == "turn" for entry in run["timeline"])
    say(f"  {run['state']}: {turns} model calls, "
        f"{run['input_tokens']} tokens in, {run['output_tokens']} out")


def describe_step(step: dict) -> str:
    match step["kind"]:
        case "turn":
            calls = ", ".join(f"{call['name']} {call['arguments']}" for call in step["calls"])
            return f"the model requests {calls}" if calls else f"the model says: {shorten(step['text'], 70)}"
        case "call_opened":
            return f"{step['name']} is about to run"
        case "call_closed":
            result = " ".join(part.get("text", "…") for part in step["result"])
            return f"{step['name']} returned in {step['ms']} ms: {shorten(result, 60)}"
        case "call_waits":
            return f"{step['name']} waits for a decision"
        case "resumed":
            return f"decided by {step['by']}"
        case "answered":
            return "the results are sent to the model"
        case "ended":
            return step["stop_reason"] or step["state"]
    return ""


def show_next(gateway: Gateway, binary: Path, run_id: str, stays: bool) -> None:
    url, model = gateway.url, QUESTIONS[0]["model"]
    binary = binary.relative_to(Path.cwd()) if binary.is_relative_to(Path.cwd()) else binary
    title("Try these in another terminal while it runs" if stays else "On a terminal, the demo keeps running and you can try these")
    say(f"""  export TOOLGATE_URL={url} TOOLGATE_KEY={gateway.key}
  {binary} chat --model {model}
  {binary} tools list
  {binary} audit
  curl -s -H "x-api-key: $TOOLGATE_KEY" {url}/api/runs/{run_id}
  curl -s -H "x-api-key: $TOOLGATE_KEY" {url}/api/mcp/clients
  curl -s -H "x-api-key: $TOOLGATE_KEY" '{url}/api/mcp/tools/explain?tool=files_read_text_file'
OpenAI SDKs work with {url}/v1, Anthropic SDKs with {url}, MCP clients with {url}/mcp.
Next: docs/agent.md, and examples/demo/toolgate.toml, which with the model's URL is the whole configuration.

Open the web page: {url}/#key={gateway.key}""")


def play(arguments, folder: Path) -> None:
    with Programs(folder) as programs:
        title("Starting")
        models = None if arguments.scripted_only else real_model(programs)
        if models is None:
            if not arguments.scripted_only:
                say("NOTE: the small model could not be installed or does not run on this machine.")
            say("NOTE: a script plays the model: the tools and their results are real, its text is not.")
            models = scripted_model(programs, arguments.scripted)
        say("starting the gateway, which starts an MCP server from PyPI and one from npm …")
        gateway = Gateway(programs, arguments.toolgate, models)
        gateway.wait_for_servers()
        say(f"ready: {gateway.url}")
        runs = [ask(gateway, question) for question in QUESTIONS]
        for run_id in runs:
            show_timeline(gateway, run_id)
        stays = sys.stdin.isatty() and not arguments.once
        show_next(gateway, arguments.toolgate, runs[-1], stays)
        if stays:
            input("\nPress Enter to quit. ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--toolgate", type=Path, default=ROOT / "target/release/toolgate")
    parser.add_argument("--scripted", type=Path, default=ROOT / "target/release/toolgate-model",
                        help="scripted model binary; built if it is missing")
    parser.add_argument("--scripted-only", action="store_true", help="use the scripted model even if the real one is installed")
    parser.add_argument("--once", action="store_true", help="exit without waiting for Enter")
    arguments = parser.parse_args()
    for name in ("toolgate", "scripted"):
        setattr(arguments, name, getattr(arguments, name).absolute())

    def leave(*_):
        raise KeyboardInterrupt

    # Explicitly: a script that starts the demo in the background lets it ignore SIGINT.
    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    folder = Path(tempfile.mkdtemp(prefix="toolgate-demo-"))
    try:
        play(arguments, folder)
        return 0
    except (KeyboardInterrupt, EOFError):
        return 130
    except (Failed, OSError, subprocess.CalledProcessError) as problem:
        say(f"\nThe demo failed: {problem}")
        for log in sorted(folder.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-8:]
            say("\n".join([f"-- last lines of {log.name}", *lines]) if lines else "", end="\n" if lines else "")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        say("\nAll started processes have ended; nothing was left behind.")


if __name__ == "__main__":
    sys.exit(main())
