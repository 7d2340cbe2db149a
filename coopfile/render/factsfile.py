"""Facts as JSON: what ``coop render facts`` prints and ``--facts FILE`` reads.

The text is written by hand or on another machine, so each mistake is named with its
place, all at once. Only what cannot be guessed has to be given: ``host.home``,
``host.workspace``, and ``host.uid`` on Linux.
"""

from __future__ import annotations

import json
import posixpath

from coopfile import strictjson
from coopfile.errors import CoopError
from coopfile.language.diagnostics import quoted, visible
from coopfile.language.suggest import did_you_mean
from coopfile.plan.hosttools import PASSED, PASSED_PREFIX
from coopfile.plan.launch import Host
from coopfile.render import factvalues as values
from coopfile.render import windows
from coopfile.render.facts import DIRECTORY, FILE, LINK, PLACEHOLDER, Engine, Entry, Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from coopfile.language.items import Variable

LARGEST = 16 << 20  # bytes; a machine with ten thousand hidden files needs two
_SHOWN_PROBLEMS = 8

SYSTEMS = ("linux", "darwin", "windows")
ENGINES = ("docker", "podman", "apple")
_KINDS = (FILE, DIRECTORY, LINK, PLACEHOLDER)
_ENTRIES = ("bind", "link", "directory", "file")

# The first account of each system; on Linux files would belong to a stranger if it were wrong.
_IDS = {"darwin": (501, 20), "windows": (1000, 1000)}
_MASKS = {"windows": "AppData/Local/coop/masks"}
_MASKS_ELSEWHERE = ".local/state/coop/masks"
_DATA = {"windows": "AppData/Local/coop"}
_DATA_ELSEWHERE = ".local/share/coop"


def to_json(facts: Facts, variables: Sequence[Variable] = ()) -> str:
    """Return facts as JSON: ASCII, indented, for a person to edit.

    ``variables`` are the plan's. Of the host's environment, the values that every
    sandbox is given are written, and that the others which the plan names are set (null),
    without their values.
    """
    outer = windows.outer if facts.system == "windows" else str
    data: dict[str, Any] = {"system": facts.system}
    # What is rendered is the default session's: a session is no fact of the machine.
    data["host"] = {name: getattr(facts.host, name) for name in Host._fields if name != "session"}
    for name in ("home", "workspace", "directory", "data"):
        path = data["host"][name]
        data["host"][name] = outer(path) if path else ""
    data["host"]["environment"] = _told(facts.host.environment, variables)
    data["engine"] = None if facts.engine is None else _fields(facts.engine)
    data["kinds"] = {outer(path): kind for path, kind in sorted(facts.kinds.items())}
    data["real"] = {outer(path): outer(leads) for path, leads in sorted(facts.real.items())}
    for name in _PATHS:
        data[name] = [outer(path) for path in getattr(facts, name)]
    data["tools"] = [_fields(entry) for entry in facts.tools]
    for name in _PLACES:
        path = getattr(facts, name)
        data[name] = outer(path) if path else ""
    data["proxy"] = facts.proxy
    return json.dumps(data, indent=2)


def from_json(text: str | bytes, name: str = "the facts") -> Facts:
    """Return the facts that a text states, with defaults for what it leaves out.

    ``name`` says in errors where the text came from. Raises CoopError with every mistake.
    """
    if len(text) > LARGEST:
        raise CoopError(f"{visible(name)} is longer than {LARGEST:,} bytes; facts never are")
    if not text.strip():
        raise _not_facts(name, ["it is empty"])
    try:
        data = strictjson.loads(text)
    except ValueError as error:
        raise _not_facts(name, [f"it is not JSON of the right kind: {error}"]) from None
    reader = _Reader(data)
    facts = reader.facts()
    if facts is None or reader.problems:
        raise _not_facts(name, reader.problems)
    return facts


def default_engine(name: str) -> Engine:
    """Return an engine of a name, as it usually is, for facts that tell of none."""
    return Engine(name, "container" if name == "apple" else name)


class _Reader:
    """Reads one document; ``problems`` are what is wrong with it, as ``place: what``."""

    def __init__(self, data: object) -> None:
        self.data = data
        self.problems: list[str] = []
        self.system = "linux"

    def facts(self) -> Facts | None:
        """Return the facts, or None when too much is wrong for that."""
        top = self._table(
            self.data,
            "",
            {
                "system": values.choice(SYSTEMS),
                "host": values.anything,
                "engine": values.anything,
                "kinds": values.anything,
                "real": values.anything,
                "tools": values.anything,
                "proxy": values.port_or_none,
                **dict.fromkeys((*_PATHS, *_PLACES), values.anything),
            },
        )
        if top is None:
            return None
        self.system = top.get("system", "linux")
        host = self._host(top.get("host", {}))
        engine = self._engine(top.get("engine"))
        kinds = self._map(top.get("kinds", {}), "kinds", values.choice(_KINDS))
        real = self._map(top.get("real", {}), "real", self._path)
        lists = {name: tuple(self._list(top.get(name, []), name, self._path)) for name in _PATHS}
        tools = self._list(top.get("tools", []), "tools", values.anything)
        entries = [self._entry(entry, f"tools.{number}") for number, entry in enumerate(tools)]
        masks, accounts = (self._value(top.get(name), name, self._path_or_none) for name in _PLACES)
        if host is None or self.problems:
            return None
        return Facts(
            host=host,
            system=self.system,
            engine=engine,
            kinds=_with_parents(kinds),
            real=real,
            tools=tuple(entry for entry in entries if entry is not None),
            accounts=accounts or "",
            masks=masks or f"{host.home.rstrip('/')}/{_MASKS.get(self.system, _MASKS_ELSEWHERE)}",
            hidden=lists["hidden"],
            inputs=lists["inputs"],
            private=lists["private"],
            mounted=lists["mounted"],
            temporary=lists["temporary"],
            proxy=top.get("proxy"),
        )

    def _host(self, data: object) -> Host | None:
        found = self._table(
            data,
            "host",
            {
                "uid": values.identifier,
                "gid": values.identifier,
                "user": values.text,
                "home": self._path,
                "workspace": self._path,
                "directory": self._path,
                "environment": values.environment,
                "shell": values.absolute,
                "started": values.whole,
                "data": self._path,
            },
        )
        if found is None:
            return None
        needed = ("home", "workspace", *(() if self.system in _IDS else ("uid",)))
        given = data if isinstance(data, dict) else {}
        missing = [name for name in needed if name not in given]
        self.problems += [f"host.{name}: it has to be given" for name in missing]
        if any(name not in found for name in needed):
            return None
        uid, gid = _IDS.get(self.system, (0, 0))
        uid = found.setdefault("uid", uid)
        found.setdefault("gid", gid if self.system in _IDS else uid)
        found.setdefault("user", posixpath.basename(found["home"]) or "root")
        found.setdefault("directory", found["workspace"])
        found.setdefault("environment", {})
        found.setdefault("data", f"{found['home'].rstrip('/')}/{_DATA.get(self.system, _DATA_ELSEWHERE)}")
        return Host(**found)

    def _engine(self, data: object) -> Engine | None:
        if data is None:
            return None
        found = self._table(
            data,
            "engine",
            {
                "name": values.choice(ENGINES),
                "program": values.program,
                "version": values.text_or_empty,
                **dict.fromkeys(
                    ("rootless", "remapped", "selinux", "init", "seccomp", "proxies"), values.boolean
                ),
                "runtimes": values.texts,
                "runtime": values.program_or_none,
                "default_runtime": values.text,
                "limits": values.limits,
                "init_path": values.absolute_or_none,
            },
        )
        if found is None or "name" not in found:
            if isinstance(data, dict) and "name" not in data:
                self.problems.append(f"engine.name: it has to be given: {', '.join(ENGINES)}")
            return None
        found.setdefault("program", default_engine(found["name"]).program)
        return Engine(**found)

    def _entry(self, data: object, place: str) -> Entry | None:
        kinds = {"kind": values.choice(_ENTRIES), "path": values.absolute, "content": values.content}
        found = self._table(data, place, kinds)
        if found is None:
            return None
        if "kind" not in found or "path" not in found:
            self.problems.append(f"{place}: an entry has a kind and a path")
            return None
        if found["kind"] == "bind":
            self._value(found.get("content"), f"{place}.content", values.absolute)
        elif found["kind"] == "link":
            self._value(found.get("content"), f"{place}.content", values.text)
        return Entry(**found)

    def _table(
        self, data: object, place: str, fields: Mapping[str, Callable[[object], Any]]
    ) -> dict[str, Any] | None:
        """Return the values of an object that are right; None if it is no object."""
        if not isinstance(data, dict):
            self.problems.append(_at(place, f"{quoted(data)} is not an object"))
            return None
        found = {}
        for name, value in data.items():
            if name not in fields:
                guess = did_you_mean(name, fields)
                what = f"{quoted(name)} is not known" + (f"; {guess}" if guess else "")
                self.problems.append(_at(place, what))
                continue
            known = len(self.problems)
            value = self._value(value, f"{place}.{name}" if place else name, fields[name])
            if len(self.problems) == known:
                found[name] = value
        return found

    def _map(self, data: object, place: str, value: Callable[[object], Any]) -> dict[str, Any]:
        if not isinstance(data, dict):
            self.problems.append(f"{place}: {quoted(data)} is not an object")
            return {}
        return {
            self._value(path, place, self._path): self._value(inner, f"{place}.{visible(path)}", value)
            for path, inner in data.items()
        }

    def _list(self, data: object, place: str, value: Callable[[object], Any]) -> list[Any]:
        if not isinstance(data, list):
            self.problems.append(f"{place}: {quoted(data)} is not a list")
            return []
        return [self._value(item, f"{place}.{number}", value) for number, item in enumerate(data)]

    def _value(self, data: object, place: str, value: Callable[[object], Any]) -> Any:
        try:
            return value(data)
        except values.BadFactError as bad:
            self.problems.append(_at(place, str(bad)))
            return None

    def _path(self, data: object) -> str:
        if self.system != "windows":
            return values.absolute(data)
        text = values.path_text(data)
        try:
            return windows.inner(text)
        except CoopError as error:
            raise values.BadFactError(error.message) from None

    def _path_or_none(self, data: object) -> str | None:
        return None if data in (None, "") else self._path(data)


_PATHS = ("hidden", "inputs", "private", "mounted", "temporary")
_PLACES = ("masks", "accounts")


def _with_parents(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the kinds with the directories that the paths stand in: paths are free of links."""
    found = dict(kinds)
    for path in kinds:
        parent = posixpath.dirname(path)
        while parent != "/" and parent not in found:
            found[parent] = DIRECTORY
            parent = posixpath.dirname(parent)
    return found


def _told(environment: Mapping[str, str], variables: Sequence[Variable]) -> dict[str, str | None]:
    own = {variable.name for variable in variables}
    asked = {variable.host for variable in variables}
    return {
        name: value if _passes(name) and name not in own else None
        for name, value in sorted(environment.items())
        if (_passes(name) and name not in own) or name in asked
    }


def _passes(name: str) -> bool:
    return name in PASSED or name.startswith(PASSED_PREFIX)


def _fields(record: Engine | Entry) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record._fields}


def _at(place: str, what: str) -> str:
    return f"{place}: {what}" if place else what


def _not_facts(name: str, problems: Sequence[str]) -> CoopError:
    lines = list(problems[:_SHOWN_PROBLEMS])
    if len(problems) > _SHOWN_PROBLEMS:
        lines.append(f"and {len(problems) - _SHOWN_PROBLEMS} more")
    message = "\n  ".join([f"{visible(name)} does not describe a machine:", *map(visible, lines)])
    return CoopError(message, "`coop render facts` prints what this machine's look like")
