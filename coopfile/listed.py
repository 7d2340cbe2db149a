"""Where the list of hosts of proxy mode was written, for the answers of the proxy.

On the path of a cached run. Plans do not say where their settings come from: two Coopfiles with the
same settings have the same plan. So the project is compiled for it, once for each state of its files.
"""

from __future__ import annotations

import os
import zlib

from coopfile import __version__
from coopfile.errors import CoopError
from coopfile.find import directories
from coopfile.plan import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coopfile.find import Project
    from coopfile.language.merging import Origin
    from coopfile.plan.model import Plan

_MOST = 3  # files that are named


def written(plan: Plan, project: Project, environment: Mapping[str, str]) -> str:
    """Return where ``network.allow`` stands, such as ``Coopfile:14``; empty if the files do not tell.

    They don't when the list was given by an option, or by a program.
    """
    own = directories(environment)
    user = None if plan.access is None else plan.access.user
    allow = tuple(map(str, plan.network.allow))
    stamps = tuple((place.layer, place.name, place.stamp) for place in project.places)
    variable = environment.get("COOP_NETWORK_ALLOW")
    key = (__version__, project.root, user, allow, stamps, variable)
    entry = _entry(own.cache, project, f"{zlib.crc32(repr(key[1:3]).encode()):08x}")
    known = cache.recall(entry, key) if entry else None
    if isinstance(known, str):
        return known
    found = _compiled(plan, project, environment, user)
    if entry:
        cache.remember(entry, key, found)
    return found


def _entry(directory: str, project: Project, name: str) -> str:
    """Return the file to remember it in; empty where a sandboxed command could write it."""
    own = os.path.realpath(directory)
    return "" if own.startswith(project.root.rstrip("/") + "/") else f"{own}/listed/{name}"


def _compiled(plan: Plan, project: Project, environment: Mapping[str, str], user: str | None) -> str:
    from coopfile.compiling import Request, compile_project

    try:
        request = Request(project.directory, user=user, locked=False)
        compiled = compile_project(request, environment, project)
    except CoopError:
        return ""
    if compiled.plan.network.allow != plan.network.allow:
        return ""
    return described(compiled.settings.origins("network.allow"))


def described(origins: Iterable[Origin]) -> str:
    """Name the places of settings to a sandboxed program: a file of the workspace with its first line.

    What is kept elsewhere is not the sandbox's business, not even by name.
    """
    from coopfile.language.diagnostics import visible

    lines: dict[str, int] = {}
    for origin in origins:
        outside = origin.source.startswith(("~", "/", "../")) or "/../" in origin.source
        name, line = ("your settings", 0) if outside else (visible(origin.source), origin.line or 0)
        lines[name] = min(line, lines.get(name, line))
    shown = [f"{name}:{line}" if line else name for name, line in lines.items()]
    more = len(shown) - _MOST
    if more > 0:
        shown[_MOST:] = [f"{more} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
