"""The protocol: what is answered, in which words of which revision, and what hostile clients get."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import coopfile
from coopfile import audit
from coopfile.find import find
from coopfile.tools.confirm import Confirmation
from coopfile.tools.definitions import NAMES, definitions
from coopfile.tools.mcp import LEGACY, MODERN, Server
from coopfile.tools.toolbox import Caller, Toolbox
from tests.unit.session.host import HostBackend

META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_PATIENCE = 60.0  # seconds


class Client:
    """The other end of a server in a thread."""

    def __init__(
        self,
        host: HostBackend,
        identity: str | None = None,
        ask: Callable[[Confirmation], object] = lambda _: True,
        *,
        blocking: bool = True,
    ) -> None:
        self._number = 0
        self._held = b""
        source, self._sink = os.pipe()
        self._source, sink = os.pipe()
        os.set_blocking(source, blocking)
        os.set_blocking(sink, blocking)
        plan = coopfile.compile(user=identity)
        session = coopfile.Session(plan.replace(access=None), backend=host)
        project = find(".", None, os.environ)

        def toolbox() -> Toolbox:
            return Toolbox(
                plan,
                project,
                Caller(identity),
                lambda: session,
                place=".",
                ask=ask,
                backend=host,
            )

        self.error: BaseException | None = None

        def serve() -> None:
            self.error = caught(Server(source, sink, definitions(plan, project.root), toolbox).serve)
            os.close(source)
            os.close(sink)

        self._thread = threading.Thread(target=serve)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Send bytes."""
        while data:
            data = data[os.write(self._sink, data) :]

    def send(self, message: object) -> None:
        """Send a message."""
        self.write(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Return the next message."""
        while b"\n" not in self._held:
            assert select.select([self._source], [], [], _PATIENCE)[0], "no answer"
            data = os.read(self._source, 1 << 16)
            assert data, "the server has ended"
            self._held += data
        line, _, self._held = self._held.partition(b"\n")
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return dict(message)

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request, return its answer."""
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}})
        answer = self.receive()
        assert answer.pop("id") == self._number
        answer.pop("jsonrpc")
        return answer

    def modern(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask as the revision of 2026-07-28 has it."""
        return self.ask(method, {**params, "_meta": {**META, **params.get("_meta", {})}})

    def begin(self, version: str = LEGACY[0]) -> dict[str, Any]:
        """Ask as those before it have it."""
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = self.ask("initialize", params)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def close(self) -> None:
        """Close the server's input, and wait for its end."""
        os.close(self._sink)
        self._thread.join(_PATIENCE)
        assert not self._thread.is_alive() and self.error is None
        os.close(self._source)


@pytest.fixture
def host() -> Iterator[HostBackend]:
    """Yield sessions whose commands are processes of the host."""
    made = HostBackend()
    yield made
    made.close()


def ran(host: HostBackend) -> int:
    """Return how many commands have been started."""
    return sum(len(live.commands) for live in host.live.values())


@pytest.fixture
def client(project: Path, host: HostBackend) -> Iterator[Client]:
    """Yield a client."""
    made = Client(host)
    yield made
    made.close()


@pytest.mark.parametrize("asked", [*LEGACY, "2025-03-26", "1999-01-01"])
def test_initialize(client: Client, asked: str) -> None:
    """A revision that is known is spoken, else the last that has `initialize`."""
    result = client.begin(asked)["result"]
    assert result["protocolVersion"] == (asked if asked in LEGACY else LEGACY[0])
    assert (result["serverInfo"]["name"], result["capabilities"]) == ("coop", {"tools": {}})
    assert client.ask("ping") == {"result": {}}
    tools = client.ask("tools/list")["result"]
    assert ([tool["name"] for tool in tools["tools"]], "resultType" in tools) == (list(NAMES), False)


def test_the_present_revision(client: Client) -> None:
    """Every request stands for itself, and every result says who made it."""
    found = client.modern("server/discover")["result"]
    assert (found["supportedVersions"][0], found["resultType"]) == (MODERN, "complete")
    tools = client.modern("tools/list")["result"]
    assert (tools["resultType"], tools["cacheScope"], tools["ttlMs"] > 0) == ("complete", "private", True)
    assert tools["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "coop"
    result = client.modern("tools/call", name="bash", arguments={"command": "echo hello"})["result"]
    assert (result["resultType"], result["isError"]) == ("complete", False)
    wrong = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}}
    error = client.modern("tools/list", **wrong)["error"]
    assert (error["code"], error["data"]["requested"]) == (-32022, "2031-01-01")
    assert error["data"]["supported"] == [MODERN, *LEGACY]
    assert client.modern("initialize")["error"]["code"] == -32601
    assert client.modern("ping")["error"]["code"] == -32601
    lacking = {"io.modelcontextprotocol/protocolVersion": MODERN}
    assert client.ask("tools/list", {"_meta": lacking})["error"]["code"] == -32602


def test_calls(client: Client, project: Path) -> None:
    """Results are text; what a command did wrong is a result, not an error of the protocol."""
    client.begin()
    for tool in client.ask("tools/list")["result"]["tools"]:
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
    told = []
    for name, arguments in (
        ("bash", {"command": "echo hello"}),
        ("bash", {"command": "echo no >&2; exit 2"}),
        ("write_file", {"path": "f", "content": "text"}),
        ("read_file", {"path": "f"}),
        ("read_file", {"path": "/etc/passwd"}),
        ("read_file", {}),
    ):
        result = client.ask("tools/call", {"name": name, "arguments": arguments})["result"]
        assert [item["type"] for item in result["content"]] == ["text"]
        told.append((result["isError"], result["content"][0]["text"].split("\n")[0]))
    assert told == [
        (False, "hello"),
        (True, "[stderr]"),
        (False, "made f, 4 bytes"),
        (False, "text"),
        (True, "/etc/passwd is outside of the workspace"),
        (True, "read_file: path is missing"),
    ]
    entries = audit.read(audit.path(str(project), os.environ))
    assert [entry["decision"] for entry in entries][:3] == ["confirmed", "confirmed", "allowed"]


LONG = r"head -c 1000000 /dev/zero | tr '\0' x; printf '\342\200\250\000\033\355\237\277 end'"


def test_long_output(client: Client) -> None:
    """It comes whole up to the limit, in one line, whatever characters are in it."""
    client.begin()
    answer = client.ask("tools/call", {"name": "bash", "arguments": {"command": LONG}})
    text = answer["result"]["content"][0]["text"]
    assert text.endswith("\u2028\x00\x1b\ud7ff end") and 90_000 < len(text) < 110_000
    assert text.startswith("[stdout: 89")


def test_progress(client: Client, host: HostBackend) -> None:
    """Who asks for it is told again and again that a call goes on, until it is answered or cancelled."""
    client.begin()
    params = {"name": "bash", "arguments": {"command": "sleep 300"}, "_meta": {"progressToken": "t"}}
    client.send({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": params})
    told = [client.receive() for _ in range(2)]
    assert [message["method"] for message in told] == ["notifications/progress"] * 2
    assert [message["params"]["progressToken"] for message in told] == ["t", "t"]
    assert told[0]["params"]["progress"] < told[1]["params"]["progress"]
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}})
    assert client.ask("ping") == {"result": {}}


def wait(what: Any) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + _PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def decided(project: Path) -> list[str]:
    """Return how calls were decided."""
    return [entry["decision"] for entry in audit.read(audit.path(str(project), os.environ))]


def results(project: Path) -> list[str]:
    """Return how calls have ended."""
    return [entry["result"] for entry in audit.read(audit.path(str(project), os.environ))]


def test_cancellation(client: Client, project: Path) -> None:
    """A cancelled call gets no answer, its command is ended, its id is free, and others go on."""
    client.begin()
    call = {"name": "bash", "arguments": {"command": "sleep 300"}}
    client.send({"jsonrpc": "2.0", "id": 100, "method": "tools/call", "params": call})
    client.send({"jsonrpc": "2.0", "id": 100, "method": "ping"})
    clash = client.receive()
    assert (clash["id"], clash["error"]["code"]) == (None, -32600)
    wrong: tuple[Any, ...] = (
        {},
        {"requestId": 5},
        {"requestId": None},
        {"requestId": []},
        {"requestId": "100"},
        [],
    )
    for params in wrong:
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    if (answer := client.receive())["id"] is None:  # params that are no object: the only answer
        assert answer["error"]["code"] == -32600
    assert client.ask("tools/call", {"name": "bash", "arguments": {"command": "echo hello"}})["result"]
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 100}})
    wait(lambda: "cancelled" in results(project))
    client.send({"jsonrpc": "2.0", "id": 100, "method": "ping"})
    assert client.receive()["id"] == 100


def test_a_client_that_goes(project: Path, host: HostBackend) -> None:
    """What still runs when the client closes is ended, and written down."""
    client = Client(host)
    client.begin()
    for number in range(3):
        call = {"name": "bash", "arguments": {"command": "sleep 300"}}
        client.send({"jsonrpc": "2.0", "id": f"{number}", "method": "tools/call", "params": call})
    wait(lambda: ran(host) == 3)
    client.close()
    assert results(project) == ["cancelled"] * 3


def test_a_client_that_goes_without_reading(project: Path, host: HostBackend) -> None:
    """Answers that nobody reads keep the server for a moment only, and what ran is written down."""
    client = Client(host)
    client.begin()
    call = {"name": "bash", "arguments": {"command": "seq 1 60000"}}
    for number in range(3):
        client.send({"jsonrpc": "2.0", "id": f"{number}", "method": "tools/call", "params": call})
    wait(lambda: len(results(project)) > 0)
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < 20
    assert "status 0" in results(project)


def test_a_socket_that_is_closed_unread(project: Path) -> None:
    """A client that goes by the way of a socket, with an answer unread, is one that has gone."""
    ours, theirs = socket.socketpair()
    server = Server(theirs.fileno(), theirs.fileno(), (), lambda: pytest.fail("nothing was called"))
    errors: list[BaseException | None] = []
    thread = threading.Thread(target=lambda: errors.append(caught(server.serve)))
    thread.start()
    ours.sendall(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    assert select.select([ours], [], [], _PATIENCE)[0]
    ours.close()
    thread.join(_PATIENCE)
    theirs.close()
    assert errors == [None]


def caught(action: Callable[[], object]) -> BaseException | None:
    """Do something, and return what it has raised."""
    try:
        action()
    except BaseException as error:
        return error
    return None


def test_streams_that_do_not_block(project: Path, host: HostBackend) -> None:
    """What is not there yet is waited for, and answers that do not fit come whole and one after the other."""
    client = Client(host, blocking=False)
    try:
        time.sleep(0.1)
        client.begin()
        call = {"name": "bash", "arguments": {"command": "seq 1 60000"}}
        for number in range(4):
            client.send({"jsonrpc": "2.0", "id": f"n{number}", "method": "tools/call", "params": call})
        wait(lambda: ran(host) == 4)
        time.sleep(0.5)
        answers = [client.receive() for _ in range(4)]
    finally:
        client.close()
    assert sorted(answer["id"] for answer in answers) == ["n0", "n1", "n2", "n3"]
    assert all(answer["result"]["content"][0]["text"].endswith("60000") for answer in answers)


def test_too_many_at_once(client: Client) -> None:
    """There is an end to what is worked on; what is refused can be asked for again."""
    client.begin()
    call = {"name": "bash", "arguments": {"command": "sleep 300"}}
    for number in range(65):
        client.send({"jsonrpc": "2.0", "id": f"n{number}", "method": "tools/call", "params": call})
    answer = client.receive()
    assert (answer["id"], answer["error"]["code"]) == ("n64", -32603)


INVALID: list[tuple[bytes, int]] = [
    (b"nonsense", -32700),
    (b"\xff\xfe", -32700),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping"', -32700),
    (b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}', -32700),
    (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', -32700),
    (b'{"jsonrpc": "2.0", "id": ' + b"9" * 5000 + b', "method": "ping"}', -32700),
    (b"[" * 100_000, -32700),
    (b'{"a":' * 100_000, -32700),
    (b"[]", -32600),
    (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
    (b"1", -32600),
    (b"null", -32600),
    (b'"text"', -32600),
    (b"{}", -32600),
    (b'{"id": 1, "method": "ping"}', -32600),
    (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600),
    (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": null}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": 1}}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "initialize"}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}', -32601),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}', -32601),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "x"}}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 1}}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "rm"}}', -32602),
    (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "bash", "arguments": "id"}}',
        -32602,
    ),
    (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", '
        b'"params": {"name": "bash", "arguments": {}, "_meta": {"progressToken": []}}}',
        -32602,
    ),
    (b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": []}', -32600),
    (b"x" * (17 << 20), -32600),
]


@pytest.mark.parametrize(("line", "code"), INVALID, ids=[repr(line[:60]) for line, _ in INVALID])
def test_invalid_messages(client: Client, host: HostBackend, line: bytes, code: int) -> None:
    """Each is answered with the protocol's error, nothing is run, and the next message is served."""
    client.begin()
    client.write(line + b"\n")
    answer = client.receive()
    assert (answer["error"]["code"], bool(answer["error"]["message"])) == (code, True)
    known = b'"id": 1,' in line or line.endswith(b'"id": 1}')
    assert answer["id"] == (1 if known and code != -32700 and line[:1] == b"{" else None)
    assert client.ask("ping") == {"result": {}}
    assert ran(host) == 0


SILENT = [
    b"",
    b"   ",
    b'{"jsonrpc": "2.0", "method": "notifications/unknown"}',
    b'{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "bash", "arguments": {"command": "x"}}}',
    b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
    b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}}',
]


@pytest.mark.parametrize("line", SILENT)
def test_what_wants_no_answer(client: Client, host: HostBackend, line: bytes) -> None:
    """Notifications and answers get none, and do nothing."""
    client.begin()
    client.write(line + b"\n")
    assert client.ask("ping") == {"result": {}}
    assert ran(host) == 0


def test_nothing_before_it_is_known_what_is_spoken(client: Client) -> None:
    """Tools are not listed nor called before `initialize`, but by who says what it speaks."""
    for method in ("tools/list", "tools/call", "server/discover", "prompts/list"):
        assert (
            client.ask(method, {"name": "bash", "arguments": {"command": "echo hello"}})["error"]["code"]
            == -32602
        )
    assert "result" in client.modern("tools/list")


def test_pieces_and_many_in_one(client: Client) -> None:
    """Messages are lines, however they arrive."""
    client.begin()
    data = b"".join(b'{"jsonrpc":"2.0","id":"%d","method":"ping"}\r\n' % number for number in range(50))
    for start in range(0, len(data), 7):
        client.write(data[start : start + 7])
    assert [client.receive()["id"] for _ in range(50)] == [str(number) for number in range(50)]


@pytest.mark.parametrize(
    ("trust", "tools"),
    [("inner", list(NAMES)), ("familiar", ["read_file"]), ("public", [])],
)
def test_tools_depend_on_trust(
    project: Path, host: HostBackend, monkeypatch: pytest.MonkeyPatch, trust: str, tools: list[str]
) -> None:
    """What a user may not call is not listed, and denied in words when it is called all the same."""
    place = project.parent / "settings/coop/Coopfile"
    place.parent.mkdir(parents=True)
    place.write_text(f'[[users]]\nname = "u"\ntrust = "{trust}"\nmatch = ["signal:u"]\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project.parent / "settings"))
    client = Client(host, "signal:u")
    try:
        client.begin()
        assert [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]] == tools
        result = client.ask("tools/call", {"name": "bash", "arguments": {"command": "echo hello"}})["result"]
        assert result["isError"] is (trust != "inner")
        assert trust == "inner" or f"{trust} trust has" in result["content"][0]["text"]
    finally:
        client.close()
    assert decided(project) == (["confirmed"] if trust == "inner" else ["denied"])


ELICITS: dict[str, Any] = {"elicitation": {}}
BASH = {"name": "bash", "arguments": {"command": "echo hello"}}


def starting(client: Client, capabilities: dict[str, Any]) -> None:
    """Say initialize, with capabilities."""
    client.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": capabilities})


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ({"result": {"action": "accept", "content": {"answer": "yes"}}}, "confirmed"),
        ({"result": {"action": "accept", "content": {"answer": "no"}}}, "declined"),
        ({"result": {"action": "accept", "content": {"answer": True}}}, "declined"),
        ({"result": {"action": "accept", "content": ["yes"]}}, "declined"),
        ({"result": {"action": "accept"}}, "declined"),
        ({"result": {"action": "decline", "content": {"answer": "yes"}}}, "declined"),
        ({"result": {"action": "cancel"}}, "declined"),
        ({"result": None}, "declined"),
        ({"error": {"code": -1, "message": "no"}}, "declined"),
    ],
)
def test_the_user_is_asked(
    client: Client, project: Path, host: HostBackend, answer: dict[str, Any], decision: str
) -> None:
    """A client that can ask its user is to, before a command runs; whatever is no clear yes is a no."""
    starting(client, ELICITS)
    client.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": BASH})
    asked = client.receive()
    assert asked["method"] == "elicitation/create" and ran(host) == 0
    assert "    echo hello\n" in asked["params"]["message"] and "sandboxed" in asked["params"]["message"]
    client.send({"jsonrpc": "2.0", "id": "coop-9", "result": {"action": "accept"}})  # nobody asked that
    client.send({"jsonrpc": "2.0", "id": asked["id"], **answer})
    told = client.receive()
    assert (told["id"], told["result"]["isError"]) == (7, decision != "confirmed")
    assert (ran(host), decided(project)) == (int(decision == "confirmed"), [decision])


def test_always(client: Client, host: HostBackend) -> None:
    """Who says always is not asked again; file tools ask nobody."""
    starting(client, {"elicitation": {"form": {}}})
    client.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": BASH})
    asked = client.receive()
    answer = {"action": "accept", "content": {"answer": "always"}}
    client.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
    assert client.receive()["result"]["isError"] is False
    client.send({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": BASH})
    assert (client.receive()["id"], ran(host)) == (8, 2)


@pytest.mark.parametrize("modern", [False, True])
def test_no_after_always(client: Client, project: Path, host: HostBackend, modern: bool) -> None:
    """Of two that are asked about at once each has its own answer: always to one, no to the other."""
    answers = [{"action": "accept", "content": {"answer": "always"}}, {"action": "decline"}]
    if modern:
        meta = {"_meta": {"io.modelcontextprotocol/clientCapabilities": ELICITS}}
        states = [client.modern("tools/call", **BASH, **meta)["result"]["requestState"] for _ in answers]
        for state, answer in zip(states, answers, strict=True):
            again = {"inputResponses": {"confirm": answer}, "requestState": state}
            client.modern("tools/call", **BASH, **again, **meta)
    else:
        starting(client, ELICITS)
        for number in (7, 8):
            client.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": BASH})
        asked = [client.receive()["id"] for _ in answers]
        for number, answer in zip(asked, answers, strict=True):
            client.send({"jsonrpc": "2.0", "id": number, "result": answer})
            client.receive()
    assert (ran(host), decided(project)) == (1, ["confirmed", "declined"])


def test_a_question_that_is_cancelled(client: Client, host: HostBackend) -> None:
    """Who cancels the call is asked no more, and an answer that comes late counts for nothing."""
    starting(client, ELICITS)
    client.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": BASH})
    asked = client.receive()
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
    assert client.receive()["params"]["requestId"] == asked["id"]
    answer = {"action": "accept", "content": {"answer": "yes"}}
    client.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
    assert client.ask("ping") == {"result": {}} and ran(host) == 0


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}, {"elicitation": True}])
def test_a_client_that_cannot_ask(project: Path, host: HostBackend, capabilities: dict[str, Any]) -> None:
    """Without a form for the user there is nobody to ask but whom the program has."""
    client = Client(host, ask=lambda _: False)
    try:
        starting(client, capabilities)
        assert client.ask("tools/call", BASH)["result"]["isError"] is True
    finally:
        client.close()
    assert (ran(host), decided(project)) == (0, ["declined"])


def test_input_that_is_required(client: Client, project: Path, host: HostBackend) -> None:
    """The new protocol's client calls again, with the answer and the state that it was given.

    An answer counts once, for the very call that it was asked for, and not with a state of one's own.
    """
    meta = {"_meta": {"io.modelcontextprotocol/clientCapabilities": ELICITS}}
    first = client.modern("tools/call", **BASH, **meta)["result"]
    assert first["resultType"] == "input_required"
    assert first["inputRequests"]["confirm"]["method"] == "elicitation/create"
    yes = {"confirm": {"action": "accept", "content": {"answer": "yes"}}}
    for state, arguments in ((None, "echo hello"), ("0" * 32, "echo hello"), (first["requestState"], "id")):
        again = {"inputResponses": yes, **({} if state is None else {"requestState": state})}
        call = {"name": "bash", "arguments": {"command": arguments}}
        result = client.modern("tools/call", **call, **again, **meta)["result"]
        assert result["resultType"] == "input_required" and ran(host) == 0
    asked = client.modern("tools/call", **BASH, **meta)["result"]
    again = {"inputResponses": yes, "requestState": asked["requestState"]}
    done = client.modern("tools/call", **BASH, **again, **meta)["result"]
    assert (done["resultType"], done["content"][0]["text"], ran(host)) == ("complete", "hello", 1)
    assert client.modern("tools/call", **BASH, **again, **meta)["result"]["resultType"] == "input_required"
    assert decided(project) == ["confirmed"]


def test_calls_that_cannot_begin_are_not_counted() -> None:
    """Each of them is answered, however many there were, and its number may be used again."""
    source, sink = os.pipe()
    answers, out = os.pipe()

    def toolbox() -> Toolbox:
        raise coopfile.CoopError("there is no session")

    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "bash", "_meta": META}}
    with os.fdopen(sink, "wb") as lines:
        lines.write(b"".join(json.dumps(call).encode() + b"\n" for _ in range(70)))
    Server(source, out, (), toolbox).serve()
    os.close(source)
    os.close(out)
    with os.fdopen(answers) as found:
        errors = [json.loads(line)["error"]["message"] for line in found]
    assert errors == ["there is no session"] * 70
