"""The errors that people see, and programs catch, are data like any other."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from collections.abc import Callable, Iterator

import pytest

import coopfile
from coopfile.access.approval import ApprovalError
from coopfile.cli.stagefailure import FailedStageError
from coopfile.compiling import CeilingError, Request, compile_project
from coopfile.engines.call import EngineError
from coopfile.engines.choose import Choice, NoBackendError, Tried
from coopfile.errors import CoopError, SettingError
from coopfile.find import Project
from coopfile.language.diagnostics import CoopfileError, Diagnostic, Position
from coopfile.native.namespaces import NamespaceError
from coopfile.rootfs.build import StageError
from coopfile.rootfs.wire import PassingError
from coopfile.tools.confirm import NotConfirmed
from tests.unit.plan.samples import PLAN

_DIAGNOSTIC = Diagnostic("error", "key", "wrong", "help", Position("Coopfile", 1, 2, 3), "x = 1")


def _lost() -> CoopError:
    error = coopfile.CommandLost("gone", "again", session="s", argv=("a",), stdout=b"o\xff", stderr=b"e")
    error.begun = True
    return error


def _unapproved() -> CoopError:
    project = Project("/project", "/project", ())
    compiled = compile_project(Request("/project"), {}, project)
    return ApprovalError(compiled, ())


# Those that take something of their own.
MADE: dict[str, Callable[[], CoopError]] = {
    "ApprovalError": _unapproved,
    "CommandFailed": lambda: coopfile.CommandFailed(coopfile.Result(("a", "b"), 3, stdout=b"o\xff")),
    "CommandLost": _lost,
    "CeilingError": lambda: CeilingError((_DIAGNOSTIC,), PLAN),
    "CoopfileError": lambda: CoopfileError([_DIAGNOSTIC]),
    "EngineError": lambda: EngineError("text", None, ("docker", "info"), "said"),
    "FailedStageError": lambda: FailedStageError(_DIAGNOSTIC, ("line",)),
    "NamespaceError": lambda: NamespaceError("text", "help", 22),
    "NoBackendError": lambda: NoBackendError([Tried("docker", Choice("docker"), "why", "help")]),
    "NotConfirmed": lambda: NotConfirmed("text", "help", asked=True),
    "PassingError": lambda: PassingError("text", None, 3, 0.5),
    "PlanDiffers": lambda: coopfile.PlanDiffers("text", "help", session="s", running="1", asked="2"),
    "SettingError": lambda: SettingError("text", "help", "network.publish", 1),
    "StageError": lambda: StageError("setup.run", 1, "false", 1, b"out\xff"),
}


def _kinds(above: type[CoopError] = CoopError) -> Iterator[type[CoopError]]:
    """Yield every kind of error in coop."""
    yield above
    for kind in above.__subclasses__():
        yield from _kinds(kind)


def _all() -> list[type[CoopError]]:
    for module in pkgutil.walk_packages(coopfile.__path__, "coopfile."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return sorted({kind for kind in _kinds() if kind.__module__.startswith("coopfile.")}, key=str)


@pytest.mark.parametrize("kind", _all(), ids=lambda kind: kind.__name__)
def test_errors_are_copied_with_their_facts(kind: type[CoopError]) -> None:
    """Through pickle in every version, by copy and deepcopy: same kind, same words, same attributes."""
    made = MADE[kind.__name__]() if kind.__name__ in MADE else kind("text", "help")
    made.also = [1]  # type: ignore[attr-defined]
    copies = [pickle.loads(pickle.dumps(made, version)) for version in range(pickle.HIGHEST_PROTOCOL + 1)]
    for found in (*copies, copy.copy(made), copy.deepcopy(made)):
        assert type(found) is kind
        assert (str(found), repr(found), found.args) == (str(made), repr(made), made.args)
        assert vars(found) == vars(made)
        assert (found.message, found.remedy, found.status) == (made.message, made.remedy, made.status)
    assert kind.__name__ in repr(made) and str(made)


def test_all_public_errors_are_among_them() -> None:
    """What `coopfile` offers for an except clause is a CoopError."""
    public = {getattr(coopfile, name) for name in coopfile.__all__}
    kinds = {item for item in public if isinstance(item, type) and issubclass(item, BaseException)}
    assert len(kinds) >= 6 and kinds <= set(_all())
