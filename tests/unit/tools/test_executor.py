"""Tools for several people: who may call what, where it runs, what is said when it may not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import coopfile
from coopfile import audit
from coopfile.tools.definitions import NAMES
from tests.unit.session.host import HostBackend

USERS = """
tools.confirm = "never"
[[users]]
name = "olga"
trust = "owner"
match = ["signal:olga"]
[[users]]
name = "fred"
trust = "full"
match = ["signal:fred"]
[[users]]
name = "ines"
trust = "inner"
match = ["signal:ines"]
override = { limits.memory = "1g" }
[[users]]
name = "fay"
trust = "familiar"
match = ["signal:fay"]
"""

# The table of design section 11: who, sandboxed, tools in a direct talk, the program's own tools too.
TABLE = [
    ("signal:olga", False, NAMES, True),
    ("signal:fred", True, NAMES, True),
    ("signal:ines", True, NAMES, False),
    ("signal:fay", True, ("read_file",), False),
    ("signal:stranger", True, (), False),
    ("terminal:default", False, NAMES, True),
    (None, True, NAMES, True),
]
PEOPLE = [str(row[0]) for row in TABLE]


class Inner:
    """A program's own tools."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, object, coopfile.Caller]] = []

    def tools(self) -> tuple[coopfile.ToolDefinition, ...]:
        """Return one, and one that cannot take the place of ours."""
        return (
            coopfile.ToolDefinition("web_search", "Search.", {"type": "object"}),
            coopfile.ToolDefinition("bash", "Not ours.", {"type": "object"}),
        )

    def execute(self, name: str, arguments: Any, caller: coopfile.Caller) -> coopfile.ToolResult:
        """Note a call."""
        self.calls.append((name, arguments, caller))
        return coopfile.ToolResult("found")


@pytest.fixture
def own(project: Path) -> Path:
    """Put the users into the reader's own file, which needs no approval; return the project."""
    place = Path(os.environ["XDG_CONFIG_HOME"], "coop", "Coopfile")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(USERS)
    (project / "Coopfile").write_text("")
    return project


@pytest.fixture(autouse=True)
def _no_own_file() -> Iterator[None]:
    yield
    Path(os.environ["XDG_CONFIG_HOME"], "coop", "Coopfile").unlink(missing_ok=True)


@pytest.fixture
def fake() -> coopfile.FakeBackend:
    """Return sessions in which `echo` is answered."""
    made = coopfile.FakeBackend()
    made.answer("echo", stdout="from the sandbox\n")
    return made


@pytest.fixture
def executor(own: Path, fake: coopfile.FakeBackend) -> Iterator[coopfile.ToolExecutor]:
    """Yield tools on sessions that run nothing."""
    with coopfile.ToolExecutor(backend=fake, inner=Inner()) as made:
        yield made


@pytest.mark.parametrize(("who", "sandboxed", "tools", "inner"), TABLE, ids=PEOPLE)
def test_the_table_of_trust(
    executor: coopfile.ToolExecutor,
    fake: coopfile.FakeBackend,
    who: str | None,
    sandboxed: bool,
    tools: tuple[str, ...],
    inner: bool,
) -> None:
    """Definitions, and what happens in a call, are what the table says; the owner's run on the host."""
    expected = (*tools, "web_search") if inner else tools
    assert tuple(tool.name for tool in executor.tools(who)) == expected
    for name, arguments in (
        ("bash", {"command": "echo"}),
        ("write_file", {"path": "file", "content": "text"}),
        ("edit_file", {"path": "file", "old_text": "text", "new_text": "other"}),
        ("read_file", {"path": "file"}),
        ("web_search", {}),
    ):
        Path("file").write_text("text") if not Path("file").exists() else None
        result = executor.execute(name, arguments, who)
        assert result.denied is (name not in expected), (name, result)
        assert result.error is result.denied
    ran = [call.argv for call in fake.calls]
    assert ran == ([("/bin/sh", "-c", "echo")] if sandboxed and "bash" in tools else [])


@pytest.mark.parametrize("who", PEOPLE[:-1])
def test_a_group_lowers_everybody(executor: coopfile.ToolExecutor, who: str) -> None:
    """In a group nobody has more than reading files, the owner neither, and the owner is sandboxed."""
    allowed = {"signal:stranger": ()}.get(who, ("read_file",))
    assert tuple(tool.name for tool in executor.tools(who, place="group")) == allowed
    result = executor.execute("bash", {"command": "echo"}, who, place="group")
    assert (result.denied, "is not for this user" in result.text) == (True, True)


@pytest.mark.parametrize("who", [row[0] for row in TABLE])
def test_schemas_are_schemas(executor: coopfile.ToolExecutor, who: str | None) -> None:
    """Each is valid JSON Schema, takes nothing that it does not name, and can be written as JSON."""
    for tool in executor.tools(who)[:4]:
        jsonschema.Draft202012Validator.check_schema(dict(tool.schema))
        assert tool.name == "web_search" or tool.schema["additionalProperties"] is False
        json.dumps(tool.schema)


WRONG: list[tuple[str, Any, str]] = [
    ("bash", None, "command is missing"),
    ("bash", [], "the arguments are no object"),
    ("bash", {"command": 1}, "command is not a text"),
    ("bash", {"command": ""}, "command is empty"),
    ("bash", {"command": "a\0b"}, "NUL"),
    ("bash", {"command": "echo", "timeout": 0}, "too small"),
    ("bash", {"command": "echo", "timeout": -1}, "too small"),
    ("bash", {"command": "echo", "timeout": float("nan")}, "too small"),
    ("bash", {"command": "echo", "timeout": 1e9}, "at most 120"),
    ("bash", {"command": "echo", "timeout": True}, "not a number"),
    ("bash", {"command": "echo", "sudo": True}, "no argument 'sudo'"),
    ("read_file", {"path": "file", "offset": 0}, "too small"),
    ("read_file", {"path": "file", "offset": 1.5}, "not a whole number"),
    ("read_file", {"path": "file", "limit": True}, "not a whole number"),
    ("read_file", {"path": "a\0b"}, "is no path"),
    ("read_file", {"path": "\ud800"}, "is no path"),
    ("write_file", {"path": "file", "content": "\ud800"}, "half of a surrogate pair"),
    ("edit_file", {"path": "file", "old_text": "", "new_text": ""}, "is empty"),
]


@pytest.mark.parametrize(("name", "arguments", "words"), WRONG)
def test_wrong_arguments(
    executor: coopfile.ToolExecutor, fake: coopfile.FakeBackend, name: str, arguments: object, words: str
) -> None:
    """They are told in words, without an exception, and nothing is run or written."""
    Path("file").write_text("text")
    result = executor.execute(name, arguments, "signal:fred")
    assert result.error and words in result.text
    assert (fake.calls, Path("file").read_text()) == ([], "text")


def test_one_session_for_each_conversation(
    executor: coopfile.ToolExecutor, fake: coopfile.FakeBackend
) -> None:
    """Sessions start with the first command, and differ by who, place and key."""
    executor.tools("signal:fred")
    assert fake.running == ()
    for who, key in (("signal:fred", "a"), ("signal:fred", "b"), ("signal:ines", "a"), ("signal:fred", "a")):
        executor.execute("bash", {"command": "echo"}, who, key=key)
    assert len({call.session for call in fake.calls}) == len(fake.running) == 3
    executor.close()
    assert fake.running == ()
    with pytest.raises(coopfile.CoopError, match="closed"):
        executor.tools()


def test_a_conversation_that_ends(own: Path, fake: coopfile.FakeBackend) -> None:
    """Its session ends, others go on, and what was always allowed is asked for again."""
    asked: list[str] = []

    def ask(confirmation: coopfile.Confirmation) -> str:
        asked.append(confirmation.command)
        return "always"

    with coopfile.ToolExecutor(backend=fake, confirm=ask, overrides={"tools.confirm": "ask"}) as executor:
        for key in ("a", "b"):
            executor.execute("bash", {"command": "echo"}, "signal:fred", key=key)
        kept = fake.calls[-1].session
        executor.destroy("signal:fred", key="a")
        executor.destroy("signal:fred", key="never used")
        executor.destroy("signal:stranger")
        assert (fake.running, len(asked)) == ((kept,), 2)
        for key in ("a", "b"):
            executor.execute("bash", {"command": "echo"}, "signal:fred", key=key)
        assert (len(fake.running), len(asked)) == (2, 3)


def test_a_conversation_of_an_earlier_program(own: Path) -> None:
    """What it has kept is forgotten, although nothing was called here before; it is that of this very key."""
    host = HostBackend()
    with coopfile.ToolExecutor(backend=host) as earlier:
        earlier.execute("bash", {"command": "true"}, "signal:ines", key="a")
    (kept,) = host.opened
    with coopfile.ToolExecutor(backend=host) as executor:
        executor.destroy("signal:ines", key="a", forget=True)
        executor.destroy("signal:fay", key="a", forget=True)
    assert [spec.name for spec in host.removed] == [kept.name]
    host.close()


@pytest.mark.parametrize(("who", "tool"), [("signal:ines", "bash"), ("signal:fay", "read_file")])
def test_every_session_has_its_time(own: Path, who: str, tool: str) -> None:
    """What is started for somebody ends for want of calls, also where they only see files through it."""
    host = HostBackend()
    (own / "file").write_text("text")
    with coopfile.ToolExecutor(backend=host, ttl=60) as executor:
        assert not executor.execute(
            tool, {"command": "true"} if tool == "bash" else {"path": "file"}, who
        ).error
    assert [spec.ttl for spec in host.opened] == [60.0]
    host.close()


@pytest.mark.parametrize("who", ["signal:olga", "signal:fred"])
@pytest.mark.parametrize("destroy", [False, True])
def test_yes_after_the_end(own: Path, who: str, destroy: bool) -> None:
    """Who says yes when all was closed, or the conversation ended, has nothing run and no session begun."""
    host = HostBackend()

    def ask(_: coopfile.Confirmation) -> str:
        made.destroy(who) if destroy else made.close()
        return "yes"

    made = coopfile.ToolExecutor(backend=host, confirm=ask, overrides={"tools.confirm": "ask"})
    result = made.execute("bash", {"command": "echo ran >ran"}, who)
    assert result.error and "closed" in result.text
    assert (host.opened, (own / "ran").exists()) == ([], False)
    made.close()
    host.close()


def test_strangers_leave_nothing(executor: coopfile.ToolExecutor) -> None:
    """Nothing is kept for those who have no tools: their names are of their own making."""
    for number in range(20):
        assert executor.execute("bash", {"command": "echo"}, f"signal:stranger{number}").denied
    assert len(executor._boxes) == 0
    with pytest.raises(coopfile.CoopError, match=r"identity|channel"):
        executor.tools("nobody")


def test_what_a_command_gave(executor: coopfile.ToolExecutor, fake: coopfile.FakeBackend) -> None:
    """Streams are told apart, status, signal, time and cut bytes are said, what is usual is not."""
    fake.answer("both", stdout="out\n", stderr="err\n", status=3)
    fake.answer("killed", signal=9)
    fake.answer("slow", takes=500)
    fake.answer("long", stdout="x" * 300_000 + "end")
    fake.answer("silent")

    def run(command: str) -> coopfile.ToolResult:
        return executor.execute("bash", {"command": command}, "signal:fred")

    assert run("echo").text == "from the sandbox"
    assert run("silent").text == "[no output]"
    both = run("both")
    assert (both.text, both.error, both.status) == ("[stdout]\nout\n[stderr]\nerr\n[exit status 3]", True, 3)
    assert "signal 9: perhaps it had more memory than limits.memory, 2g" in run("killed").text
    assert "ended after 120 s" in run("slow").text
    long = run("long").text
    assert long.endswith("end") and len(long) < 110_000 and "bytes before this are not shown" in long


def test_a_session_that_is_lost(executor: coopfile.ToolExecutor, fake: coopfile.FakeBackend) -> None:
    """What goes wrong in a call is its result, and the next call works again."""
    result = executor.execute("bash", {"command": "unknown"}, "signal:fred")
    assert result.error and "the test has no answer" in result.text
    assert executor.execute("bash", {"command": "echo"}, "signal:fred").text == "from the sandbox"


def test_the_owner_on_the_host(executor: coopfile.ToolExecutor, own: Path) -> None:
    """Commands are this machine's, in the workspace, with the program's variables; time ends all of them."""
    os.environ["SOME_VARIABLE"] = "here"
    try:
        result = executor.execute("bash", {"command": "pwd; echo $SOME_VARIABLE"}, "signal:olga")
    finally:
        del os.environ["SOME_VARIABLE"]
    assert result.text.split() == [str(own), "here"]
    began = time.monotonic()
    script = "sleep 300 & echo $! > pid; wait"
    result = executor.execute("bash", {"command": script, "timeout": 0.5}, "signal:olga")
    assert (result.status, time.monotonic() - began < 60) == (124, True)
    pid = int((own / "pid").read_text())
    while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        time.sleep(0.01)


def test_async_and_cancelled(executor: coopfile.ToolExecutor) -> None:
    """The same on a loop; a task that is cancelled ends its command, and is in the log."""

    async def main() -> None:
        result = await executor.execute_async("bash", {"command": "echo a"}, "signal:olga")
        assert result.text == "a"
        task = asyncio.create_task(
            executor.execute_async("bash", {"command": "echo $$ > pid; exec sleep 300"}, "signal:olga")
        )
        while not (Path("pid").exists() and Path("pid").read_text().strip()):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not Path(f"/proc/{Path('pid').read_text().strip()}").exists()
    entries = audit.read(audit.path(os.getcwd(), os.environ))
    assert [entry["result"] for entry in entries] == ["status 0", "cancelled"]


def test_others_do_not_wait_for_a_person(own: Path, fake: coopfile.FakeBackend) -> None:
    """However many commands somebody is asked about, calls of others and the loop's own threads go on."""
    answered = threading.Event()
    (own / "file").write_text("text")

    def ask(_: coopfile.Confirmation) -> bool:
        assert answered.wait(60)
        return False

    async def main() -> None:
        call = "bash", {"command": "echo"}, "signal:fred"
        asked = [asyncio.create_task(made.execute_async(*call)) for _ in range(40)]
        try:
            await asyncio.sleep(0.1)
            reading = made.execute_async("read_file", {"path": "file"}, "signal:fay")
            assert (await asyncio.wait_for(reading, 30)).text == "text"
        finally:
            answered.set()
        assert all(result.denied for result in await asyncio.gather(*asked))

    with coopfile.ToolExecutor(backend=fake, confirm=ask, overrides={"tools.confirm": "ask"}) as made:
        asyncio.run(main())


def test_a_child_that_is_forked_meanwhile(executor: coopfile.ToolExecutor, own: Path) -> None:
    """It can call tools, whatever other threads of its parent were at."""
    (own / "file").write_text("text")
    assert executor.execute("read_file", {"path": "file"}, "signal:fay").text == "text"
    with executor._lock, executor._boxes[coopfile.Caller("signal:fay")]._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            result = executor.execute("read_file", {"path": "file"}, "signal:fay")
            os._exit(0 if result.text == "text" else 3)
    assert os.waitpid(child, 0)[1] == 0


def test_from_many_threads(executor: coopfile.ToolExecutor, fake: coopfile.FakeBackend) -> None:
    """Calls at once are served at once, by one session, and each is in the log."""
    results: list[str] = []

    def work() -> None:
        results.append(executor.execute("bash", {"command": "echo"}, "signal:fred").text)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["from the sandbox"] * 20
    assert len(fake.running) == 1
    assert len(audit.read(audit.path(os.getcwd(), os.environ))) == 20


def test_what_needs_approval_is_refused(project: Path, fake: coopfile.FakeBackend) -> None:
    """A Coopfile that widens, or makes somebody an owner, does nothing before `coop allow`."""
    (project / "Coopfile").write_text('[[users]]\nname = "eve"\ntrust = "owner"\nmatch = ["signal:eve"]\n')
    executor = coopfile.ToolExecutor(backend=fake)
    with pytest.raises(coopfile.CoopError, match="gives the sandbox more"):
        executor.execute("bash", {"command": "id"}, "signal:eve")


def test_inner_tools(own: Path, fake: coopfile.FakeBackend) -> None:
    """They get the arguments and the caller, and are written down; ours cannot be replaced."""
    inner = Inner()
    with coopfile.ToolExecutor(backend=fake, inner=inner) as executor:
        caller = coopfile.Caller("signal:fred", "direct", "k")
        assert executor.execute("web_search", {"q": 1}, "signal:fred", key="k").text == "found"
        assert inner.calls == [("web_search", {"q": 1}, caller)]
        assert executor.execute("bash", {"command": "echo"}, "signal:fred").text == "from the sandbox"
        assert executor.execute("other", {}, "signal:fred").denied
    entries = audit.read(audit.path(os.getcwd(), os.environ))
    assert [entry["tool"] for entry in entries] == ["web_search", "bash", "other"]
