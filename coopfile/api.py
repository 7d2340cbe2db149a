"""The Python API: from a Coopfile to a plan, and from a plan to an argv for any subprocess call."""

from __future__ import annotations

import os
import shutil
import sys

from coopfile.compiling import Request, compile_project
from coopfile.errors import CoopError
from coopfile.plan import canonical

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coopfile.plan.model import Plan

_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); from coopfile.startup import entry; entry()"


def compile(
    path: str | os.PathLike[str] | None = None,
    *,
    user: str | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Plan:
    """Return the plan of a Coopfile: its layers merged, checked, and held to the ceiling.

    ``path`` is a Coopfile, or a directory that belongs to a project; None stands for the
    current one. ``user`` is an identity, ``channel:sender``, or the name of one of
    ``[[users]]``. ``overrides`` maps keys such as ``network.mode`` to values, as ``--set``
    does. Raises CoopError with everything that is wrong, and for what the project's
    files widen without the owner's approval (`coop allow`).
    """
    from coopfile.access import approval
    from coopfile.find import approvals

    directory, file = located(path)
    request = Request(directory, file=file, assignments=assigned(overrides))
    named = user is None or ":" in user  # which no user's name has
    compiled = compile_project(request.replace(identity=user) if named else request.replace(user=user))
    approval.require(compiled, approvals(os.environ))
    return compiled.plan


def wrap(
    argv: Sequence[str],
    plan: Plan,
    *,
    directory: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
) -> list[str]:
    """Return the argv that runs a command under a plan, whichever back end enforces it.

    It is a whole ``coop run``: it chooses the back end, holds what the plan protects,
    and cleans up. ``directory`` is where the command is started, in the project that is
    the workspace; None stands for wherever the argv is started. ``timeout`` is in
    seconds. The argv does not depend on the environment; no value of a host's variable is in it.
    """
    if isinstance(argv, str) or not argv or not all(isinstance(word, str) for word in argv):
        raise CoopError("a command is a list of a program and its arguments", 'such as ["make", "test"]')
    options = ["-q", "--plan", canonical.to_json(plan, indent=None)]
    if directory is not None:
        options += ["-C", os.path.abspath(directory)]
    if timeout is not None and timeout != float("inf"):
        from coopfile.language.quantities import Duration

        most = Duration.maximum // 1000
        if not timeout > 0:  # nor nan
            raise CoopError(f"timeout is {timeout}", "it is a number of seconds; None stands for no limit")
        if timeout > most:
            raise CoopError(f"timeout is {timeout}", f"the most is {most}, a week; None stands for no limit")
        options += ["--timeout", f"{max(int(timeout * 1000), 1)}ms"]
    return [*_coop(), "run", *options, "--", *argv]


def located(path: str | os.PathLike[str] | None) -> tuple[str, str | None]:
    """Return the directory to look in, and the file if it is not the directory's own Coopfile."""
    if path is None:
        return ".", None
    text = os.fspath(path)
    if os.path.isdir(text):
        return text, None
    directory, name = os.path.split(text)
    return directory or ".", None if name == "Coopfile" and os.path.exists(text) else name


def assigned(overrides: Mapping[str, object] | None) -> tuple[str, ...]:
    """Return overrides as ``--set`` takes them. Raises CoopError."""
    return tuple(f"{key}={_toml(value)}" for key, value in (overrides or {}).items())


def _toml(value: object) -> str:
    """Return a value as ``--set`` takes it: TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise CoopError(f"overrides: {value!a} has a byte that is not UTF-8", "use texts of characters")
        from coopfile.language.value_type import toml_string

        return toml_string(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml(str(key))} = {_toml(inner)}' for key, inner in value.items())}}}"
    raise CoopError(
        f"overrides: {value!r} is not a value of a Coopfile", "use texts, numbers, lists and dicts"
    )


def _coop() -> list[str]:
    """Return how to start this installation of coop."""
    if not sys.executable:
        found = shutil.which("coop")
        if found is None:
            raise CoopError("neither the interpreter nor the command coop can be found", "put coop on PATH")
        return [found]
    script = os.path.join(os.path.dirname(sys.executable), "coop")
    if os.access(script, os.X_OK):
        return [script]
    return [sys.executable, "-I", "-c", _PROGRAM, os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
