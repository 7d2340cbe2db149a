"""The Model Context Protocol on standard streams: tools of one caller for whatever client starts this.

Messages are JSON-RPC 2.0, a line each. It speaks revision 2026-07-28, in which every request says what
it speaks, and those before, which begin with ``initialize``:
https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning

One thread reads and answers what takes no time; calls of tools go on beside it, on an event loop that is
started with the first one. Nothing else is imported before that: clients wait for ``initialize``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time
from collections.abc import Callable, Sequence

from coopfile import __version__, strictjson
from coopfile.errors import CoopError
from coopfile.record import Record
from coopfile.tools.definitions import NAMES
from coopfile.tools.elicitation import Questions, can_elicit

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import concurrent.futures
    from typing import Any

    from coopfile.tools.definitions import ToolDefinition
    from coopfile.tools.toolbox import Toolbox

MODERN = "2026-07-28"
# 2025-03-26 is not among them: it wants batches, which came and went with it.
LEGACY = ("2025-11-25", "2025-06-18", "2024-11-05")

PARSE, REQUEST, METHOD, PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
VERSION = -32022  # UnsupportedProtocolVersion

_META = "io.modelcontextprotocol/"
_LONGEST = 16 << 20  # bytes of a message
_CHUNK = 1 << 16
_MOST_CALLS = 64  # at once
_LINGERS = 2.0  # seconds in which a client that has closed its end may still read what is being written
_LOOKS = 0.5  # seconds between two looks whether it has
_PROGRESS = 1.0  # seconds between two notifications
_SERVER = {"name": "coop", "title": "coop", "version": __version__}
_INSTRUCTIONS = (
    "Tools that run shell commands, and read and write files, in a sandbox that its owner has described. "
    "What it does not allow is denied with the rule that decides: work without it, or tell the user."
)


class ProtocolError(Exception):
    """What a client has sent is answered with an error: ``code``, ``text`` and ``data``."""

    def __init__(self, code: int, text: str, data: object = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.data = data


class Request(Record):
    """A message that wants an answer.

    ``modern`` tells which of the two kinds of protocol it speaks, ``elicits`` that its client can ask a
    person.
    """

    id: str | int
    method: str
    params: dict[str, Any]
    modern: bool
    elicits: bool = False


class Server:
    """Answers one client."""

    def __init__(
        self, source: int, sink: int, tools: Sequence[ToolDefinition], toolbox: Callable[[], Toolbox]
    ) -> None:
        """Have ``toolbox`` make what does calls with the first of them; ``tools`` are what it has.

        ``source`` and ``sink`` are descriptors, which stay the caller's.
        """
        self._source = source
        self._sink = sink
        self._described = [_described(definition) for definition in tools]
        self._make = toolbox
        self._toolbox: Toolbox | None = None
        self._writing = threading.Lock()
        self._begun = False  # a client of an earlier revision has said initialize
        self._elicits = False  # and that it can ask its user
        self._asked = Questions()
        self._calls: dict[str | int, concurrent.futures.Future[None] | None] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended: float | None = None  # when the client closed its end

    def serve(self) -> None:
        """Answer until the client closes its end; calls that have not ended are ended then."""
        try:
            for line in _lines(self._source):
                if line is None:
                    self._refuse(None, ProtocolError(REQUEST, f"a message has at most {_LONGEST} bytes"))
                elif line.strip():
                    self._take(line)
        except ConnectionError:
            pass  # nobody reads the answers; of a socket, none that were there are read any more
        finally:
            self._close()

    def _take(self, line: bytes) -> None:
        number: str | int | None = None
        try:
            message = _parsed(line)
            number = _number(message)
            if "method" not in message and ("result" in message or "error" in message):
                self._asked.take(message)
                return
            method, params = _method(message)
            if "id" not in message:
                self._notified(method, params)
                return
            if number is None:
                raise ProtocolError(REQUEST, "id is neither a text nor a whole number")
            with self._lock:
                if number in self._calls:
                    taken = number
                    number = None  # the answer to that one is not this
                    raise ProtocolError(
                        REQUEST, f"the id {taken!r:.100} is of a request that is not answered yet"
                    )
            result = self._answer(self._request(number, method, params))
            if result is not None:
                self._send({"jsonrpc": "2.0", "id": number, "result": result})
        except ProtocolError as error:
            self._refuse(number, error)
        except CoopError as error:
            self._refuse(number, ProtocolError(INTERNAL, _words(error)))
        except RecursionError:
            self._refuse(number, ProtocolError(PARSE, "the message is nested too deeply"))

    def _request(self, number: str | int, method: str, params: dict[str, Any]) -> Request:
        """Return a request, and find out what it speaks. Raises ProtocolError."""
        meta = params.get("_meta")
        if meta is not None and not isinstance(meta, dict):
            raise ProtocolError(PARAMS, "_meta is no object")
        version = (meta or {}).get(_META + "protocolVersion")
        if version is None:
            if method not in ("initialize", "ping") and not self._begun:
                raise ProtocolError(
                    PARAMS, f"_meta has no {_META}protocolVersion, and nothing was initialized"
                )
            return Request(number, method, params, False, self._elicits)
        if version != MODERN:
            supported = {"supported": [MODERN, *LEGACY], "requested": version}
            raise ProtocolError(VERSION, "Unsupported protocol version", supported)
        capabilities = (meta or {}).get(_META + "clientCapabilities")
        if not isinstance(capabilities, dict):
            raise ProtocolError(PARAMS, f"_meta has no {_META}clientCapabilities")
        return Request(number, method, params, True, can_elicit(capabilities))

    def _answer(self, request: Request) -> dict[str, Any] | None:
        """Return the result of a request; None if it comes later. Raises ProtocolError, CoopError."""
        if request.method == "tools/list":
            return self._listed(request)
        if request.method == "tools/call":
            self._call(request)
            return None
        if request.modern and request.method == "server/discover":
            found = {"supportedVersions": [MODERN, *LEGACY], "capabilities": {"tools": {}}}
            return _complete({**found, "instructions": _INSTRUCTIONS, **_CACHE}, True)
        if not request.modern and request.method == "initialize":
            return self._initialize(request.params)
        if not request.modern and request.method == "ping":
            return {}
        raise ProtocolError(METHOD, f"there is no method {request.method!r:.100}")

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        version = params.get("protocolVersion")
        if not isinstance(version, str):
            raise ProtocolError(PARAMS, "protocolVersion is missing")
        self._begun = True
        capabilities = params.get("capabilities")
        self._elicits = isinstance(capabilities, dict) and can_elicit(capabilities)
        return {
            "protocolVersion": version if version in LEGACY else LEGACY[0],
            "capabilities": {"tools": {}},
            "serverInfo": _SERVER,
            "instructions": _INSTRUCTIONS,
        }

    def _listed(self, request: Request) -> dict[str, Any]:
        if request.params.get("cursor") is not None:
            raise ProtocolError(PARAMS, "there is no such cursor: all tools are in one answer")
        return _complete({"tools": self._described, **(_CACHE if request.modern else {})}, request.modern)

    def _call(self, request: Request) -> None:
        name, arguments = request.params.get("name"), request.params.get("arguments", {})
        if not isinstance(name, str):
            raise ProtocolError(PARAMS, "name is missing: which tool is to be called")
        if not isinstance(arguments, dict):
            raise ProtocolError(PARAMS, "arguments is no object")
        if name not in NAMES:  # those that are for others are denied in words, and written down
            raise ProtocolError(PARAMS, f"Unknown tool: {name!r:.100}")
        token = (request.params.get("_meta") or {}).get("progressToken")
        if token is not None and not _is_number(token):
            raise ProtocolError(PARAMS, "progressToken is neither a text nor a whole number")
        import asyncio

        toolbox, loop = self._tools(), self._started()
        with self._lock:
            if len(self._calls) >= _MOST_CALLS:
                raise ProtocolError(
                    INTERNAL, f"{_MOST_CALLS} calls are being worked on: wait for one of them"
                )
            self._calls[request.id] = None
        work = self._work(toolbox, request, name, arguments, token)
        future = asyncio.run_coroutine_threadsafe(work, loop)
        with self._lock:
            if request.id in self._calls:
                self._calls[request.id] = future
        future.add_done_callback(lambda done: self._forget(request.id, done))

    def _forget(self, number: str | int, future: object) -> None:
        """Forget a call that was cancelled before it began."""
        with self._lock:
            if self._calls.get(number) is future:
                del self._calls[number]

    async def _work(
        self,
        toolbox: Toolbox,
        request: Request,
        name: str,
        arguments: dict[str, Any],
        token: str | int | None,
    ) -> None:
        import asyncio

        progress = None if token is None else asyncio.create_task(self._progress(token))
        try:
            message: dict[str, Any]
            try:
                question = toolbox.question(name, arguments) if request.elicits else None
                ask, wanted = None, None
                if request.modern and request.elicits:
                    ask, wanted = self._asked.again(question, name, arguments, request.params)
                elif question is not None:
                    ask = await self._asked.ask(question, self._send)
                if wanted is not None:
                    message = {"result": wanted}
                else:
                    result = await toolbox.call_async(name, arguments, ask=ask)
                    content = [{"type": "text", "text": result.text}]
                    told = {"content": content, "isError": result.error}
                    message = {"result": _complete(told, request.modern)}
            except CoopError as error:
                message = {"error": {"code": INTERNAL, "message": _words(error)}}
            except Exception as error:
                message = {"error": {"code": INTERNAL, "message": f"a bug in coop: {error!r:.500}"}}
        finally:
            if progress is not None:
                progress.cancel()
            with self._lock:
                self._calls.pop(request.id, None)
        try:
            self._send({"jsonrpc": "2.0", "id": request.id, **message})
        except ConnectionError:
            pass  # the reading thread finds out by itself

    async def _progress(self, token: str | int) -> None:
        """Tell again and again that it goes on; how far a command is, nobody knows."""
        import asyncio

        seconds = 0
        while True:
            await asyncio.sleep(_PROGRESS)
            seconds += 1
            told = {"progressToken": token, "progress": seconds, "message": f"running for {seconds} s"}
            try:
                self._send({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
            except ConnectionError:
                return

    def _notified(self, method: str, params: dict[str, Any]) -> None:
        if method != "notifications/cancelled":
            return
        number = params.get("requestId")
        with self._lock:
            future = self._calls.get(number) if isinstance(number, str | int) else None
        if future is not None:
            future.cancel()

    def _tools(self) -> Toolbox:
        if self._toolbox is None:
            self._toolbox = self._make()
        return self._toolbox

    def _started(self) -> asyncio.AbstractEventLoop:
        """Return the loop that calls run on."""
        if self._loop is None:
            import asyncio

            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        return self._loop

    def _close(self) -> None:
        self._ended = time.monotonic()
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            import asyncio

            asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(30)
            loop.close()
        if self._toolbox is not None:
            self._toolbox.close()

    def _refuse(self, number: str | int | None, error: ProtocolError) -> None:
        told: dict[str, Any] = {"code": error.code, "message": error.text}
        if error.data is not None:
            told["data"] = error.data
        self._send({"jsonrpc": "2.0", "id": number, "error": told})

    def _send(self, message: dict[str, Any]) -> None:
        """Write one line, whole. Raises ConnectionError where nobody reads it."""
        left = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        with self._writing:
            while left:
                self._wait_for_room()
                with contextlib.suppress(BlockingIOError):  # somebody else has it filled
                    left = left[os.write(self._sink, left[: select.PIPE_BUF]) :]

    def _wait_for_room(self) -> None:
        """Wait until ``PIPE_BUF`` bytes can be written. Raises BrokenPipeError for a client that is done."""
        room = select.poll()
        room.register(self._sink, select.POLLOUT)
        while not room.poll(_LOOKS * 1000):
            if self._ended is not None and time.monotonic() > self._ended + _LINGERS:
                raise BrokenPipeError


# Nothing of it changes while the server runs, and it is for one caller.
_CACHE = {"ttlMs": 3_600_000, "cacheScope": "private"}


async def _cancel_all() -> None:
    """Cancel every task of this loop, and wait until their commands have been ended."""
    import asyncio

    own = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not own]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _lines(source: int) -> Any:
    """Yield lines without their ends; None for one that is too long, of which nothing is kept."""
    held = bytearray()
    skipping = False
    while chunk := _read(source):
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if skipping:
                yield None
            else:
                yield bytes(held + chunk[start:end])
            held.clear()
            skipping = False
            start = end + 1
        if not skipping:
            held += chunk[start:]
            if len(held) > _LONGEST:
                held.clear()
                skipping = True


def _read(source: int) -> bytes:
    """Return what comes next, nothing at the end.

    Streams that are handed down may not block: some other program, such as one in Node that starts the
    server and is otherwise done, has wanted that of the pipes that both have.
    """
    while True:
        try:
            return os.read(source, _CHUNK)
        except BlockingIOError:
            waiting = select.poll()
            waiting.register(source, select.POLLIN)
            waiting.poll()


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        message = strictjson.loads(line.decode("utf-8"), fractions=True)
    except ValueError as error:
        raise ProtocolError(PARSE, f"this is no JSON: {error}"[:500]) from None
    if isinstance(message, list):
        raise ProtocolError(REQUEST, "there are no batches: send one message in each line")
    if not isinstance(message, dict):
        raise ProtocolError(REQUEST, "a message is an object")
    return message


def _number(message: dict[str, Any]) -> str | int | None:
    found = message.get("id")
    return found if _is_number(found) else None


def _is_number(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _method(message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if message.get("jsonrpc") != "2.0":
        raise ProtocolError(REQUEST, 'jsonrpc is not "2.0"')
    method, params = message.get("method"), message.get("params", {})
    if not isinstance(method, str):
        raise ProtocolError(REQUEST, "method is no text")
    if not isinstance(params, dict):
        raise ProtocolError(PARAMS if "id" in message else REQUEST, "params is no object")
    return method, params


def _complete(result: dict[str, Any], modern: bool) -> dict[str, Any]:
    if not modern:
        return result
    return {"resultType": "complete", **result, "_meta": {_META + "serverInfo": _SERVER}}


def _described(definition: ToolDefinition) -> dict[str, Any]:
    return {
        "name": definition.name,
        "description": definition.description,
        "inputSchema": dict(definition.schema),
        "annotations": {"readOnlyHint": definition.read_only, "openWorldHint": definition.name == "bash"},
    }


def _words(error: CoopError) -> str:
    return f"{error.message} ({error.remedy})" if error.remedy else error.message
