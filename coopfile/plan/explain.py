"""Whether a plan allows one action, by which rule, and what to do about it.

It answers for the native runner on the host's own tools. Paths are those of the
host: "may the sandboxed program read this file of mine?". Everything is lexical
and pure: links are not followed, and nothing is looked up on this machine.
"""

from __future__ import annotations

import posixpath

from coopfile.errors import UsageError
from coopfile.language.items import HostPattern
from coopfile.language.settings import BUILT_IN_PROTECT
from coopfile.language.values import BadValue, HostPatternType
from coopfile.plan import hosttools, sessions
from coopfile.plan.endpoints import DNS, NAMESERVER, is_local, is_loopback
from coopfile.plan.globs import compile_globs
from coopfile.plan.hosttools import PASSED, PASSED_PREFIX
from coopfile.plan.launch import PATH, expand, inside
from coopfile.plan.model import leaf
from coopfile.plan.reach import VARIABLES, allowing
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coopfile.language.merging import Settings
    from coopfile.plan.model import Plan

BUILT_IN = "built in"
COOP_SETS = (
    "COOP_CREATED",
    "COOP_SESSION",
    "COOP_WORKSPACE",
    "HOME",
    "LOGNAME",
    "PATH",
    "PWD",
    "SHELL",
    "TAR_OPTIONS",
    "USER",
)

_NOTHING, _READ, _WRITE = range(3)


class Action(Record):
    """Something that a sandboxed program may try.

    ``verb`` is read, write, exec, connect or env. ``target`` is a path of the host
    (``~/`` is the home; a relative one is below the workspace), a program's name or
    path, ``HOST[:PORT]`` (443 without), or a variable's name.
    """

    verb: str
    target: str


class Verdict(Record):
    """An answer: which rule decides (a setting's key, or ``built in``), why, and how to change it.

    ``origin`` is where the rule was written, such as ``Coopfile:14``, when the
    settings were given and it was written somewhere.
    """

    allowed: bool
    key: str
    reason: str
    remedy: str | None = None
    origin: str | None = None


class _Question(Record):
    plan: Plan
    target: str
    home: str
    workspace: str
    settings: Settings | None

    def origin(self, key: str, item: object = None) -> str | None:
        """Name the line of a scalar, or of one item of a list."""
        if self.settings is None:
            return None
        origins = self.settings.origins(key)
        return str(origins[0 if item is None else leaf(self.plan, key).index(item)])

    def short(self, path: str) -> str:
        """Write a path of the host as a Coopfile would."""
        return "~" + path[len(self.home) :] if inside(path, self.home) else path


class _View(Record):
    """What one rule gives of a path: nothing, reading, or writing too."""

    level: int
    key: str
    reason: str
    remedy: str | None = None
    origin: str | None = None


def explain(
    plan: Plan, action: Action, *, home: str, workspace: str, settings: Settings | None = None
) -> Verdict:
    """Say whether the plan allows an action.

    ``home`` and ``workspace`` are the caller's, as absolute paths of the host;
    ``settings`` adds the line that decides. Raises UsageError for a verb or a target
    that makes no sense.
    """
    answer = _ANSWERS.get(action.verb)
    if answer is None:
        raise UsageError(f"no such action: {action.verb!r}", f"actions are {', '.join(_ANSWERS)}")
    if not action.target or not action.target.isprintable():
        raise UsageError(f"{action.verb} cannot have {action.target!r} as its target")
    return answer(_Question(plan, action.target, home, workspace, settings))


def _read(question: _Question) -> Verdict:
    return _path(question, _READ)


def _write(question: _Question) -> Verdict:
    return _path(question, _WRITE)


def _exec(question: _Question) -> Verdict:
    access = question.plan.access
    if access is not None and "bash" not in access.tools:
        return Verdict(
            False,
            "users.trust",
            f"{access.trust} trust may not run commands",
            "it takes inner trust or more, and a place that is not a group",
        )
    if "/" in question.target:
        return _path(question, _READ)
    whose = "host's own, read-only" if question.plan.base.image is None else "image's"
    return Verdict(True, BUILT_IN, f"programs are looked for in {PATH}: the {whose}")


def _path(question: _Question, wanted: int) -> Verdict:
    target = question.target
    if target == "~" or target.startswith("~/"):
        target = question.home + target[1:]
    path = posixpath.normpath(posixpath.join(question.workspace, target))
    path = "/" + path.lstrip("/")
    # A project may lie below /tmp: what is mounted is asked about, not the sandbox's own /tmp.
    given = [view for view in _mounted(question, path) if view is not None]
    view = (
        _hidden(question, path)
        or max(given, key=lambda view: view.level, default=None)
        or _kept(question, path, wanted)
        or _system(question, path, wanted)
        or _absent(question, path, wanted)
    )
    if view.level >= wanted:
        return Verdict(True, view.key, view.reason, None, view.origin)
    return Verdict(False, view.key, view.reason, view.remedy, view.origin)


def _hidden(question: _Question, path: str) -> _View | None:
    """Return the view of a path of the workspace that ``files.hide`` names, or something above it."""
    if path == question.workspace or not inside(path, question.workspace):
        return None
    parts = path[len(question.workspace) :].strip("/").split("/")
    outer = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    for glob in question.plan.files.hide:
        matches = compile_globs([glob])
        if glob in outer or any(matches(path) for path in outer):
            remedy = f'take "{glob}" out of files.hide'
            return _View(
                _NOTHING, "files.hide", f'"{glob}" hides it', remedy, question.origin("files.hide", glob)
            )
    return None


def _mounted(question: _Question, path: str) -> Iterable[_View | None]:
    """Yield what the workspace and the innermost path of ``files`` of either spelling give of a path."""
    files = question.plan.files
    yield _mount(question, path, question.workspace, True, "workspace.path", None)
    for from_home in (True, False):
        listed = [
            (expand(item, question.home), write, key, item)
            for key, items, write in (("files.read", files.read, False), ("files.write", files.write, True))
            for item in items
            if item.startswith("~") == from_home
        ]
        around = [entry for entry in listed if inside(path, entry[0])]
        if around:
            yield _mount(question, path, *max(around, key=lambda entry: (len(entry[0]), not entry[1])))


def _mount(
    question: _Question, path: str, source: str, write: bool, key: str, item: str | None
) -> _View | None:
    if not inside(path, source):
        return None
    origin = question.origin(key, item)
    named = "it is in the workspace" if item is None else f'"{item}" is given'
    if not write:
        return _View(_READ, key, f"{named}, read-only", f'move "{item}" to files.write', origin)
    for guarded, rule, text in _guarded(question):
        # What a Coopfile names itself below the home, it may have; below the workspace it may not.
        counts = rule == "workspace.protect" or (guarded != source and inside(guarded, source))
        if counts and inside(path, guarded):
            line = None if rule == BUILT_IN else question.origin(rule, text)
            if rule == "files.read":
                return _View(
                    _READ, rule, f'"{text}" is given, read-only', f'move "{text}" to files.write', line
                )
            own = rule != BUILT_IN and text not in BUILT_IN_PROTECT
            why = "" if own else ": the host runs it or reads it as configuration"
            reason = f'"{text}" is protected{why}'
            return _View(_READ, rule, reason, "change it outside of the sandbox", line)
    return _View(_WRITE, key, f"{named}, for reading and writing", None, origin)


def _guarded(question: _Question) -> Iterable[tuple[str, str, str]]:
    """Yield (path of the host, rule, how the rule writes it) of all that no sandbox may change."""
    for text in question.plan.workspace.protect:
        yield posixpath.join(question.workspace, text), "workspace.protect", text
    for text in hosttools.HOME_PROTECT:
        yield posixpath.join(question.home, text), BUILT_IN, f"~/{text}"
    for text in question.plan.files.read:
        yield expand(text, question.home), "files.read", text


def _kept(question: _Question, path: str, wanted: int) -> _View | None:
    """Return what the sandbox has in place of a path of the home that outlives its runs."""
    for item in sessions.kept(question.plan, question.workspace):
        place = f"{question.home}/{item.path}"
        if inside(path, place):
            origin = question.origin(item.key, item.item)
            reason = f"the sandbox has a {question.short(place)} of its own, which the next run finds again"
            seen = wanted == _WRITE or path == place
            remedy = None if seen else f'for yours, add "{question.short(path)}" to files.read'
            return _View(_WRITE if seen else _NOTHING, item.key, reason, remedy, origin)
    return None


def _system(question: _Question, path: str, wanted: int) -> _View | None:
    """Return what every sandbox has of a path."""
    tool = any(inside(path, tool) for tool in hosttools.TOOLS)
    if question.plan.base.image is not None and (tool or inside(path, "/etc")):
        reason = "what is there inside is the image's, not the host's"
        return _View(_NOTHING, "base.image", reason, None, question.origin("base.image"))
    if tool:
        remedy = "for other tools, build a root file system with base.image and packages"
        return _View(_READ, BUILT_IN, "the host's own tools, read-only", remedy)
    if any(inside(path, f"/etc/{name}") for name in hosttools.ETC):
        return _View(_READ, BUILT_IN, "configuration that programs need, read-only")
    if path in {f"/etc/{name}" for name in hosttools.ETC_OWN}:
        return _View(_READ, BUILT_IN, "the sandbox has its own, which names no account of the host")
    if path == "/etc/resolv.conf" and question.plan.network.mode == "host":
        origin = question.origin("network.mode")
        return _View(_READ, "network.mode", "the host's network needs the host's name servers", None, origin)
    if path == "/etc/resolv.conf" and question.plan.network.mode == "veth":
        origin = question.origin("network.mode")
        return _View(_READ, "network.mode", "the sandbox's own: its server asks the host's", None, origin)
    if inside(path, "/proc"):
        masked = any(inside(path, f"/proc/{name}") for name in hosttools.PROC_MASKED)
        level, reason = (
            (_NOTHING, "it tells of the whole machine") if masked else (_READ, "the sandbox's own")
        )
        return _View(level, BUILT_IN, reason)
    if any(inside(path, f"/dev/{name}") for name in (*hosttools.DEVICES, *hosttools.DEVICES_OWN)):
        return _View(_WRITE, BUILT_IN, "a device that holds nothing, or the sandbox's own")
    if inside(path, question.home):
        return None  # wherever that lies: the sandbox has another one
    scratch = next((scratch for scratch in hosttools.SCRATCH if inside(path, scratch)), None)
    if scratch is None:
        return None
    reason = f"the sandbox has a {scratch} of its own, empty at the start and gone at the end"
    seen = wanted == _WRITE or path == scratch
    return _View(_WRITE if seen else _NOTHING, BUILT_IN, reason)


def _absent(question: _Question, path: str, wanted: int) -> _View:
    key = "files.write" if wanted == _WRITE else "files.read"
    if inside(path, question.home):
        reason = "the sandbox has a home of its own; it sees of yours what files.read and files.write name"
    else:
        reason = "of the host it sees tools, the workspace, and what files.read and files.write name"
    return _View(_NOTHING, key, reason, f'add "{question.short(path)}" to {key}')


def _connect(question: _Question) -> Verdict:
    endpoint = _endpoint(question.target)
    network = question.plan.network
    mode, origin = network.mode, question.origin("network.mode")

    def by_mode(allowed: bool, reason: str, remedy: str | None = None) -> Verdict:
        return Verdict(allowed, "network.mode", f'"{mode}": {reason}', remedy, origin)

    if mode == "host":
        return by_mode(True, "the host's network, all of it")
    if is_loopback(endpoint.host):
        return by_mode(True, "the sandbox's own loopback, on which nothing of the host listens")
    if mode == "none":
        ask = f'set network.mode = "proxy" and network.allow = ["{_as_pattern(endpoint)}"]'
        return by_mode(False, "there is no network but loopback", ask)
    if mode == "veth":
        if (endpoint.host, endpoint.port) == (NAMESERVER, DNS):
            return by_mode(True, "what the sandbox asks for names, which are the host's name server's")
        if is_local(endpoint.host):
            reason = "this machine, its neighbours and the cloud's metadata are out of reach"
            return by_mode(False, reason, 'only network.mode = "host" reaches them, and everything else')
        return by_mode(True, "the internet; not an address of this machine or its neighbours")
    pattern = allowing(network.allow, endpoint.host, endpoint.port or 443)
    if pattern is None:
        return Verdict(
            False,
            "network.allow",
            f"the proxy leads to {_series(network.allow)} only",
            f'add "{_as_pattern(endpoint)}" to network.allow',
        )
    return Verdict(
        True, "network.allow", f'"{pattern}" allows it', None, question.origin("network.allow", pattern)
    )


def _env(question: _Question) -> Verdict:
    name = question.target
    if "=" in name:
        raise UsageError(f"not the name of a variable: {name!r}")
    for variable in question.plan.env:
        if variable.name == name:
            host = variable.host
            reason = (
                "it has the text given" if host is None else f"it has the host's {host}, where there is one"
            )
            return Verdict(True, "env", reason, None, question.origin("env", variable))
    for cache in question.plan.session.caches:
        if name in sessions.variables((cache,), ""):
            origin = question.origin("session.caches", cache)
            return Verdict(True, "session.caches", f'"{cache}" sets it: that is where it is', None, origin)
    if name in VARIABLES and question.plan.network.mode == "proxy":
        origin = question.origin("network.mode")
        return Verdict(True, "network.mode", '"proxy" sets it: that is the way out', None, origin)
    if name in COOP_SETS:
        return Verdict(True, BUILT_IN, "coop sets it; the host's value stays outside")
    if name in PASSED or name.startswith(PASSED_PREFIX):
        return Verdict(True, BUILT_IN, "it says how to write to people, and passes from the host")
    remedy = f'set env.{name} = {{ host = "{name}" }}'
    return Verdict(False, "env", "the host's variables stay outside unless [env] names them", remedy)


def _endpoint(text: str) -> HostPattern:
    """Parse ``HOST[:PORT]`` as the language does; a pattern is not an endpoint."""
    try:
        found: HostPattern = HostPatternType().parse(text)
    except BadValue as error:
        raise UsageError(error.message, error.help) from None
    if found.subdomains:
        raise UsageError(f"{text} is many hosts", f"name one, such as www.{found.host}")
    return found if found.port else found.replace(port=443)


def _series(patterns: Sequence[HostPattern]) -> str:
    return ", ".join(map(str, patterns)) or "nothing"


def _as_pattern(endpoint: HostPattern) -> str:
    return str(endpoint.replace(port=None) if endpoint.port in (80, 443) else endpoint)


_ANSWERS = {"read": _read, "write": _write, "exec": _exec, "connect": _connect, "env": _env}
