"""`coop mcp` with the official clients, in real sandboxes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ElicitResult

from tests.sandboxes import DEADLINE, Project, Workshop, plain_environment, run, wait_until
from tests.toollab import log

pytestmark = pytest.mark.native

GUARDS = '[workspace]\nprotect = ["release.sh"]\n[files]\nhide = ["**/.env*"]\n'


UNASKED = ("--set", "tools.confirm=never")


def server(project: Project, *options: str) -> list[str]:
    """Return the argv of a server, as an agent's configuration has it."""
    return [*project.actor.prefix, *project.actor.coop, "mcp", "-C", str(project.directory), *options]


def parameters(project: Project, *options: str) -> StdioServerParameters:
    """Return the same for the Python SDK."""
    command, *arguments = server(project, *options)
    return StdioServerParameters(command=command, args=arguments, env=project.environment, cwd="/")


def text(result: Any) -> str:
    """Return the text of a result."""
    return "".join(item.text for item in result.content)


@pytest.mark.parametrize(
    ("mode", "revision"), [("legacy", "2025-11-25"), ("auto", "2026-07-28"), ("2026-07-28", "2026-07-28")]
)
def test_the_python_sdk(project: Project, mode: str, revision: str) -> None:
    """Both kinds of protocol: tools are listed, called, denied, told of, and cancelled."""
    project.coopfile(GUARDS)
    project.write(".env", "SECRET")
    told: list[float] = []

    async def told_of(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async def main() -> None:
        async with Client(stdio_client(parameters(project, *UNASKED)), mode=mode) as client:
            assert client.protocol_version == revision
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["bash", "read_file", "write_file", "edit_file"]
            result = await client.call_tool("bash", {"command": "pwd; echo err >&2; exit 3"})
            assert (text(result), result.is_error) == (
                "[stdout]\n/workspace\n[stderr]\nerr\n[exit status 3]",
                True,
            )
            result = await client.call_tool("read_file", {"path": ".env"})
            assert result.is_error and "files.hide" in text(result) and "SECRET" not in text(result)
            result = await client.call_tool("bash", {"command": "seq 200000", "timeout": 50.5})
            assert text(result).endswith("\n200000") and len(text(result)) > 100_000
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("nope", {})
            call = client.call_tool(
                "bash", {"command": "touch begun; exec sleep 300"}, progress_callback=told_of
            )
            task = asyncio.create_task(call)
            while not (told and (project.directory / "begun").exists()):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # In the session that the others have been in, and without the command that was cancelled.
            while True:
                result = await client.call_tool("bash", {"command": "cat /proc/[0-9]*/comm"})
                if "sleep" not in text(result).split():
                    break

    asyncio.run(asyncio.wait_for(main(), DEADLINE))
    results = [json.loads(line)["result"] for line in log(project)]
    assert "cancelled" in results and results[0] == "status 3"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_the_python_sdk_asks_its_user(project: Project, mode: str) -> None:
    """Commands run when the user says so; a client that asks nobody is refused, and told how to mend that."""
    answers = [("accept", "yes"), ("decline", None), ("accept", "always")]
    asked: list[str] = []

    async def ask(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        action, answer = answers[len(asked) - 1]
        content: Any = None if answer is None else {"answer": answer}
        return ElicitResult(action=action, content=content)  # type: ignore[arg-type]

    async def main() -> list[tuple[str, bool]]:
        found = []
        transport = stdio_client(parameters(project))
        async with Client(transport, mode=mode, elicitation_callback=ask) as client:
            for number in range(4):
                result = await client.call_tool("bash", {"command": f"echo {number}"})
                found.append((text(result), result.is_error))
        async with Client(stdio_client(parameters(project)), mode=mode) as client:
            result = await client.call_tool("bash", {"command": "touch ran"})
            found.append((text(result), result.is_error))
            result = await client.call_tool("write_file", {"path": "made", "content": ""})
            assert not result.is_error
        return found

    found = asyncio.run(asyncio.wait_for(main(), DEADLINE))
    assert found[0] == ("0", False) and found[2:4] == [("2", False), ("3", False)]
    assert found[1][1] and "said no" in found[1][0]
    assert found[4][1] and "elicitation" in found[4][0] and "tools.confirm" in found[4][0]
    assert len(asked) == 3 and "    echo 0\n" in asked[0] and "network: none" in asked[0]
    assert not (project.directory / "ran").exists()
    decisions = [json.loads(line)["decision"] for line in log(project)]
    assert decisions == ["confirmed", "declined", "confirmed", "allowed", "refused", "allowed"]


@pytest.fixture(scope="session")
def node(workshop: Workshop) -> Path:
    """Return a directory with the TypeScript SDKs, of both kinds of protocol; skips where there are none."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("there is no Node")
    place = workshop.base / "node"
    place.mkdir(mode=0o755)
    names = ("@modelcontextprotocol/client@2", "@modelcontextprotocol/sdk@1")
    command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *names]
    environment = {**os.environ, "npm_config_cache": str(place / "cache")}
    try:
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, timeout=180, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not answer")
    if done.returncode:
        pytest.skip(f"npm: {done.stderr[-300:]}")
    return place


NODE = """
import { Client as New } from "@modelcontextprotocol/client";
import { StdioClientTransport as NewStdio } from "@modelcontextprotocol/client/stdio";
import { Client as Old } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as OldStdio } from "@modelcontextprotocol/sdk/client/stdio.js";
const [kind, environment, command, ...args] = process.argv.slice(2);
const [Client, Stdio] = kind === "old" ? [Old, OldStdio] : [New, NewStdio];
const client = new Client({ name: "test", version: "1" });
await client.connect(new Stdio({ command, args, env: JSON.parse(environment) }));
const told = { server: client.getServerVersion().name };
told.tools = (await client.listTools()).tools.map((tool) => tool.name);
told.bash = await client.callTool({ name: "bash", arguments: { command: "echo $((6 * 7)); exit 3" } });
told.write = await client.callTool({ name: "write_file", arguments: { path: "made", content: "by node" } });
try { await client.callTool({ name: "nope", arguments: {} }); } catch (error) { told.error = error.code; }
await client.close();
console.log(JSON.stringify(told));
"""


@pytest.mark.xdist_group("node")  # so that the SDKs are fetched once
@pytest.mark.parametrize("kind", ["old", "new"])
def test_the_typescript_sdk(project: Project, node: Path, kind: str) -> None:
    """The clients of both generations list and call."""
    program = node / f"{kind}.mjs"
    program.write_text(NODE)
    environment = json.dumps(project.environment)
    result = run(
        ["node", str(program), kind, environment, *server(project, *UNASKED)],
        b"",
        node,
        plain_environment(node),
    )
    assert result.status == 0, result
    told = json.loads(result.out)
    assert (told["server"], len(told["tools"]), told["error"]) == ("coop", 4, -32602)
    assert told["bash"] == {**told["bash"], "isError": True}
    assert told["bash"]["content"] == [{"type": "text", "text": "42\n[exit status 3]"}]
    assert (project.directory / "made").read_text() == "by node"


def messages(*requests: dict[str, Any]) -> bytes:
    """Return lines of requests of a client that has begun."""
    begin = {"method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    lines = [{"jsonrpc": "2.0", "id": number, **item} for number, item in enumerate((begin, *requests))]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def call(name: str, **arguments: object) -> dict[str, Any]:
    """Return the request for a tool."""
    return {"method": "tools/call", "params": {"name": name, "arguments": arguments}}


def answers(project: Project, data: bytes, *options: str) -> dict[int, dict[str, Any]]:
    """Return what a server answers, by the number of the request; it reads until all is answered."""
    command = server(project, *options)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", env=project.environment
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(data)
        process.stdin.flush()
        found = {}
        for _ in range(data.count(b"\n")):
            message = json.loads(process.stdout.readline())
            found[message["id"]] = message
        process.stdin.close()
        assert process.wait(DEADLINE) == 0
        return found
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_owner_is_not_served_unasked(project: Project) -> None:
    """Commands of the owner's run on this machine, so not before the owner has said that nobody is asked."""
    request = messages(call("bash", command="pwd"), {"method": "tools/list"})
    found = answers(project, request, "--as", "terminal:default")
    assert "has to be confirmed" in found[1]["result"]["content"][0]["text"]
    assert "on this machine" in found[2]["result"]["tools"][0]["description"]
    never = ("--as", "terminal:default", "--set", "tools.confirm=never")
    found = answers(project, request, *never)
    assert found[1]["result"]["content"][0]["text"] == str(project.directory)


def test_a_session_with_a_name_stays(project: Project) -> None:
    """Others find it; without a name nothing is left."""
    answers(project, messages(call("bash", command="echo here > /tmp/file")), *UNASKED)
    assert json.loads(project.coop("ls", "--json").out) == {"sessions": []}
    answers(project, messages(call("bash", command="echo here > /tmp/file")), "--session", "agent", *UNASKED)
    assert project.coop("exec", "agent", "--", "cat", "/tmp/file").out == "here\n"
    assert project.coop("rm", "agent").status == 0


def test_a_server_that_is_killed(project: Project) -> None:
    """Its commands and its session end with it."""
    process = subprocess.Popen(
        server(project, *UNASKED),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd="/",
        env=project.environment,
    )
    assert process.stdin is not None
    process.stdin.write(messages(call("bash", command="while true; do touch alive; sleep 0.05; done")))
    process.stdin.flush()
    alive = project.directory / "alive"
    assert wait_until(alive.exists)
    process.kill()
    process.wait()
    process.stdin.close()

    def is_quiet() -> bool:
        alive.unlink(missing_ok=True)
        time.sleep(1)  # twenty times as long as the command takes to make it again
        return not alive.exists()

    assert wait_until(is_quiet)


def test_what_is_wrong_is_said_at_the_start(project: Project) -> None:
    """A Coopfile with a mistake, or that needs approval, is no server, and says why."""
    project.coopfile("[limit]\n", allow=False)
    command = server(project)
    result = run(command, b"", project.directory, project.environment)
    assert (result.status, result.stdout) == (125, b"") and "did you mean [limits]?" in result.err
    project.coopfile('network.mode = "host"\n', allow=False)
    result = run(command, b"", project.directory, project.environment)
    assert (result.status, result.stdout) == (125, b"") and "coop allow" in result.err


def test_secrets_of_a_session_that_was_there(project: Project) -> None:
    """What its starter had is not in the log either, though the server never had it."""
    project.coopfile('env.TOKEN = { host = "TOKEN" }\n')
    options = ["--session", "agent", *UNASKED]
    started = project.run("true", options=options, environment={"TOKEN": "s3cr3t"})
    assert started.status == 0
    # The second server has another plan than the session, so that its command is not run.
    for more, result in ([], "status 0"), (["--set", "limits.pids=99"], "error"):
        answers(project, messages(call("bash", command="echo s3cr3t")), *options, *more)
        entry = json.loads(log(project)[-1])
        assert (entry["tool"], entry["command"], entry["result"]) == ("bash", "echo <TOKEN>", result)
    assert project.coop("rm", "agent").status == 0
