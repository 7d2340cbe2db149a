"""What ``coop check`` finds on this machine: can a back end enforce the plan, and the image be had?"""

from __future__ import annotations

import os
import threading

from coopfile.engines.choose import NATIVE, Choice, Tried, falls_back, look, wanted
from coopfile.errors import CoopError
from coopfile.find import approvals, directories
from coopfile.language.diagnostics import Diagnostic
from coopfile.launching import outside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from coopfile.compiling import Compiled
    from coopfile.language.diagnostics import Position
    from coopfile.plan.model import Plan

    Answer = TypeVar("Answer")

_PATIENCE = 20.0  # seconds for a registry, whatever it does


def look_around(compiled: Compiled, position: Callable[[str], Position | None]) -> tuple[Diagnostic, ...]:
    """Return what is missing here; ``position`` tells where a key was written."""
    plan = compiled.plan
    if not plan.sandbox.enabled:
        return ()
    try:
        environment = outside(plan, compiled.project, os.environ)
        choice, tried = _chosen(plan, environment)
    except CoopError as error:
        choice, tried = None, [Tried(NATIVE, None, error.message, error.remedy)]
    except OSError as error:
        choice, tried = None, [Tried(NATIVE, None, str(error))]
    if choice is not None:
        return _image(compiled, choice, environment, position("base.image"))
    why = "; ".join(f"{item.name}: {item.why}" for item in tried)
    remedy = "; or ".join(dict.fromkeys(item.remedy for item in tried if item.remedy)) or None
    on_host = falls_back(plan)
    message = f"no back end here can enforce this ({why})"
    if on_host:
        message += ", so commands run unsandboxed"
    severity = "warning" if on_host else "error"
    return (Diagnostic(severity, "backend", message, remedy, position("sandbox.backend"), None),)


def _chosen(plan: Plan, environment: Mapping[str, str]) -> tuple[Choice | None, list[Tried]]:
    """Return the first back end that the plan takes and that works here, and what was wrong with others."""
    failed: list[Tried] = []
    for tried in look(plan, wanted(plan), environment):
        if tried.choice is not None and tried.name == NATIVE:
            tried = _native(tried, plan)
        if tried.choice is not None:
            return tried.choice, failed
        failed.append(tried)
    return None, failed


def _native(tried: Tried, plan: Plan) -> Tried:
    """Return what this machine lacks for namespaces, if it lacks something."""
    from coopfile.native.preparing import internet
    from coopfile.native.probe import lacking

    ability = lacking()
    if ability is not None:
        return Tried(NATIVE, None, f"{ability.name}: {ability.detail}", ability.remedy)
    if plan.network.mode == "veth":
        try:
            internet("network.mode")
        except CoopError as error:
            return Tried(NATIVE, None, error.message, error.remedy)
    return tried


def _image(
    compiled: Compiled, choice: Choice, environment: Mapping[str, str], position: Position | None
) -> tuple[Diagnostic, ...]:
    """Return a warning if the image is neither here nor to be had. Nobody is asked for a stranger's image."""
    image = compiled.plan.base.image
    if image is None or not _is_approved(compiled) or _is_present(compiled, choice, environment):
        return ()
    from coopfile.rootfs import fetch

    try:
        _within(_PATIENCE, lambda: fetch.resolve(image, environment, compiled.project.root))
    except (CoopError, OSError) as error:
        why = error.message if isinstance(error, CoopError) else str(error)
        remedy = (error.remedy if isinstance(error, CoopError) else None) or "is its name right?"
        message = f"{image} is not here, and cannot be had now: {why}"
        return (Diagnostic("warning", "image", message, remedy, position, None),)
    return ()


def _is_approved(compiled: Compiled) -> bool:
    from coopfile.access import approval

    open_changes = approval.unapproved(compiled, approvals(os.environ))
    return not any(change.key == "base.image" for change in open_changes)


def _is_present(compiled: Compiled, choice: Choice, environment: Mapping[str, str]) -> bool:
    plan = compiled.plan
    try:
        if choice.engine is None:
            from coopfile.rootfs import base

            for descriptor in base.find(plan, directories(os.environ).rootfs, compiled.project.root).held:
                os.close(descriptor)
            return True
        from coopfile.engines.images import exists
        from coopfile.render.images import on_engine

        return exists(choice.engine, str(on_engine(plan).base.image), environment)
    except CoopError:
        return False


def _within(seconds: float, do: Callable[[], Answer]) -> Answer:
    """Return what a function does, which may not take longer. Raises what it raises, and CoopError."""
    found: list[Answer] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(do())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise CoopError(f"no answer within {seconds:g} s", "is the registry within reach?")
    return found[0]
