"""Asking a person before a command runs: what is asked, and asking on the terminal."""

from __future__ import annotations

import sys
import threading

from coopfile.errors import CoopError
from coopfile.language.diagnostics import visible
from coopfile.plan.compare import show
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from coopfile.plan.model import Plan

YES, NO, ALWAYS = "yes", "no", "always"
_WORDS = {"y": YES, "yes": YES, "a": ALWAYS, "always": ALWAYS}
_QUESTION = "run it? [y]es, [N]o, [a]lways in this session: "
_REMEDY = (
    'tools.confirm = "never", COOP_TOOLS_CONFIRM=never, or --set tools.confirm=never runs it without asking'
)

_NETWORKS = {
    "none": "none",
    "veth": "the internet, but not this machine nor its neighbours",
    "host": "this machine's, all of it",
}

_one_at_a_time = threading.Lock()


class Confirmation(Record):
    """What is to be confirmed.

    ``command`` is as the model gave it: it may hold anything that a terminal acts on. ``directory`` is
    where it starts, ``permits`` what whatever runs it lets it do, a line each.
    """

    command: str
    directory: str
    permits: tuple[str, ...]
    user: str | None = None

    @property
    def text(self) -> str:
        """The question in words, for a terminal: control characters are visible, nothing is left out."""
        who = f" for {visible(self.user)}" if self.user else ""
        lines = [f"a command is to run{who}:"]
        lines += [f"    {visible(line)}" for line in self.command.split("\n")]
        lines.append(f"  in {visible(self.directory)}")
        lines += [f"  {visible(line)}" for line in self.permits]
        return "\n".join(lines)


class NotConfirmed(CoopError):
    """A command was not run, because nobody said yes. ``asked`` tells whether anybody could."""

    def __init__(self, message: str, remedy: str | None = None, *, asked: bool) -> None:
        super().__init__(message, remedy)
        self.asked = asked


def permits(plan: Plan, *, sandboxed: bool) -> tuple[str, ...]:
    """Return what a command may do, in a few lines."""
    if not sandboxed:
        return ("NOT sandboxed: it may do on this machine whatever you may",)
    written = ", ".join(("the workspace", *plan.files.write))
    guarded = f" ({len(plan.workspace.protect)} protected paths aside)" if plan.workspace.protect else ""
    return (
        f"sandboxed; it may write: {written}{guarded}",
        f"network: {_network(plan)}",
        f"limits: {show('limits.memory', plan.limits.memory)} of memory, {plan.limits.pids} processes",
    )


def ask_on_terminal(confirmation: Confirmation) -> str:
    """Ask on standard error and input, which have to be a terminal. Raises NotConfirmed if they are not."""
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        raise not_asked()
    with _one_at_a_time:
        sys.stderr.write(f"{confirmation.text}\n{_QUESTION}")
        sys.stderr.flush()
        return _WORDS.get(sys.stdin.readline().strip().lower(), NO)


def _network(plan: Plan) -> str:
    if plan.network.mode == "proxy":
        return f"only {', '.join(map(str, plan.network.allow)) or 'nothing'}"
    return _NETWORKS[plan.network.mode]


def not_asked(why: str = "there is no terminal to ask on") -> NotConfirmed:
    """Return the error where nobody can be asked."""
    return NotConfirmed(f"the command was not run: it has to be confirmed, and {why}", _REMEDY, asked=False)


class Gate:
    """Has commands of one session confirmed, until somebody says always."""

    def __init__(self, plan: Plan, ask: Callable[[Confirmation], object] | None) -> None:
        self._never = plan.tools.confirm == "never"
        self._ask = ask or ask_on_terminal
        self._always = False

    @property
    def asks(self) -> bool:
        """Whether the next command has to be confirmed."""
        return not (self._never or self._always)

    def check(self, confirmation: Confirmation, ask: Callable[[Confirmation], object] | None = None) -> str:
        """Return how it was decided: ``allowed`` unasked, or ``confirmed``. Raises NotConfirmed.

        ``ask`` stands in for what else is asked. Whatever is no clear yes is a no.
        """
        # An ``ask`` may have the answer already, which counts whatever was said of another command meanwhile.
        if ask is None and not self.asks:
            return "allowed"
        answer = (ask or self._ask)(confirmation)
        if answer == ALWAYS:
            self._always = True
        elif answer is not True and answer != YES:
            raise NotConfirmed(
                "the command was not run: the person who was asked said no",
                "do not try the same again; say what it was for, or find another way",
                asked=True,
            )
        return "confirmed"


def _is_terminal(stream: object) -> bool:
    try:
        return bool(stream is not None and stream.isatty())  # type: ignore[attr-defined]
    except ValueError:
        return False  # it was closed
