"""What came of a shell command, in words that a model can act on."""

from __future__ import annotations

from coopfile.language.diagnostics import visible
from coopfile.plan.compare import show
from coopfile.tools.rules import refusals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopfile.plan.model import Plan
    from coopfile.session.result import Result

_SIGKILL, _SIGSYS = 9, 31


def told(result: Result, plan: Plan, workspace: str | None) -> str:
    """Return a result's output and everything about it that is not as usual, for a model to read.

    ``workspace`` is the host's directory that the sandbox has as such, None without a sandbox.
    """
    parts = []
    for name, data, cut in (
        ("stdout", result.text, result.cut_stdout),
        ("stderr", result.error_text, result.cut_stderr),
    ):
        if cut:
            parts.append(
                f"[{name}: {cut} bytes before this are not shown: send it to a file, or ask for less]"
            )
        if data and (name == "stderr" or result.stderr):
            parts.append(f"[{name}]")
        if data:
            parts.append(data.rstrip("\n"))
    parts += [f"[{visible(note)}]" for note in _notes(result, plan, workspace)]
    return "\n".join(parts) or "[no output]"


def _notes(result: Result, plan: Plan, workspace: str | None) -> Iterator[str]:
    if result.timed_out:
        yield f"it was ended after {result.timeout:g} s, with all that it had started"
        yield "have it do less at once, or start it in the background with its output in a file"
    elif result.signal is not None:
        yield f"ended by signal {result.signal}{'' if workspace is None else _reason(result.signal, plan)}"
    elif result.status:
        yield f"exit status {result.status}"
    yield from result.notes
    if workspace is not None and result.status:
        yield from (f"denied: {text}" for text in refusals(plan, result.error_text, workspace))
    # Connections that the sandbox's proxy has blocked meanwhile, of a session that tells of them.
    for denial in dict.fromkeys(denial.text for denial in result.denials):
        yield f"blocked: {denial}"


def _reason(number: int, plan: Plan) -> str:
    if number == _SIGKILL:
        return f": perhaps it had more memory than limits.memory, {show('limits.memory', plan.limits.memory)}"
    if number == _SIGSYS:
        return ": it made a system call that the sandbox does not allow"
    return ""
