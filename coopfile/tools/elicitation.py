"""Asking the user of an MCP client before a command runs, by what the protocol calls elicitation.

Until revision 2025-11-25 the server sends a request of its own; since 2026-07-28 it answers that input is
required, and the client calls again with that:
https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation
"""

from __future__ import annotations

import json
import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    from coopfile.tools.confirm import Confirmation

    Ask = Callable[[Confirmation], object]

_KEY = "confirm"
_MOST = 64  # questions that are remembered until the client calls again
_SCHEMA = {
    "type": "object",
    "properties": {
        "answer": {
            "type": "string",
            "title": "Run it?",
            "description": "always: also all later commands of this session",
            "enum": ["yes", "no", "always"],
        }
    },
    "required": ["answer"],
}


def can_elicit(capabilities: dict[str, Any]) -> bool:
    """Tell whether a client can show its user a form. One that names no mode has that one."""
    found = capabilities.get("elicitation")
    return isinstance(found, dict) and (not found or "form" in found)


class Questions:
    """What was asked and not answered yet. ``take`` may be called by another thread than the rest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._waiting: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Future[object]]] = {}
        self._stated: dict[str, str] = {}

    async def ask(self, question: Confirmation, send: Callable[[dict[str, Any]], None]) -> Ask:
        """Send the client a request, wait for its answer, and return what gives that."""
        import asyncio

        loop = asyncio.get_running_loop()
        answered: asyncio.Future[object] = loop.create_future()
        with self._lock:
            self._number += 1
            number = f"coop-{self._number}"
            self._waiting[number] = (loop, answered)
        try:
            send({"jsonrpc": "2.0", "id": number, **_request(question, modern=False)})
            return _giving(await answered)
        except asyncio.CancelledError:
            cancelled = {"requestId": number, "reason": "the call was cancelled"}
            send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
            raise
        finally:
            with self._lock:
                self._waiting.pop(number, None)

    def take(self, message: dict[str, Any]) -> None:
        """Take a message as the answer to what was asked; others do not matter."""
        number = message.get("id")
        with self._lock:
            found = self._waiting.pop(number, None) if isinstance(number, str) else None
        if found is not None:
            loop, answered = found
            loop.call_soon_threadsafe(_settle, answered, message.get("result"))

    def again(
        self, question: Confirmation | None, name: str, arguments: dict[str, Any], params: dict[str, Any]
    ) -> tuple[Ask | None, dict[str, Any] | None]:
        """Return what gives the answer that a client calls with; else the result that asks the question.

        An answer counts once, for the call that it was asked for, and also where nothing is to be asked now.
        """
        state, responses = params.get("requestState"), params.get("inputResponses")
        if question is None and state is None:
            return None, None
        about = json.dumps([name, arguments], sort_keys=True)
        with self._lock:
            asked = self._stated.pop(state, None) if isinstance(state, str) else None
        if asked == about and isinstance(responses, dict) and _KEY in responses:
            return _giving(responses[_KEY]), None
        if question is None:
            return None, None
        state = os.urandom(16).hex()
        with self._lock:
            while len(self._stated) >= _MOST:
                self._stated.pop(next(iter(self._stated)))
            self._stated[state] = about
        requests = {_KEY: _request(question, modern=True)}
        return None, {"resultType": "input_required", "inputRequests": requests, "requestState": state}


def _request(question: Confirmation, *, modern: bool) -> dict[str, Any]:
    params = {"message": question.text, "requestedSchema": _SCHEMA, **({"mode": "form"} if modern else {})}
    return {"method": "elicitation/create", "params": params}


def _giving(answer: object) -> Ask:
    """Return what answers with a client's answer: whatever is not accepted in so many words is a no."""
    content = answer.get("content") if isinstance(answer, dict) and answer.get("action") == "accept" else None
    said = content.get("answer") if isinstance(content, dict) else None
    word = said if said in ("yes", "always") else "no"
    return lambda _: word


def _settle(answered: asyncio.Future[object], result: object) -> None:
    if not answered.done():
        answered.set_result(result)
