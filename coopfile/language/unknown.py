"""What to say about a key that the language does not have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coopfile.language.settings import SETTINGS
from coopfile.language.suggest import nearest

# What other tools call things.
_SYNONYMS = {
    "caps": "limits",
    "command": "agent.command",
    "cpu": "limits.cpus",
    "deny": "files.hide",
    "domains": "network.allow",
    "environment": "env",
    "exclude": "files.hide",
    "extends": "base.image",
    "from": "base.image",
    "hosts": "network.allow",
    "ignore": "files.hide",
    "mounts": "files.write",
    "ports": "network.publish",
    "processes": "limits.pids",
    "ram": "limits.memory",
    "readonly": "files.read",
    "script": "setup.run",
    "variables": "env",
    "vars": "env",
    "volumes": "files.write",
    "workdir": "workspace.path",
}

_TOP = ("coop", "users", "ceiling")


def for_key(table: Sequence[str], key: str, known: Iterable[str]) -> str | None:
    """Return help for a key that its table does not have.

    ``table`` is the dotted path of the table, empty at the top of the file;
    ``known`` are the keys that the table does have. A key that is right somewhere
    else is sent there.
    """
    here = ".".join(table)
    known = list(known)
    elsewhere = [setting.key for setting in SETTINGS if setting.key.endswith("." + key)]
    if key in _TOP and table:
        return f"`{key}` stands at the top of the file, above the first [table] or as a table of its own"
    if elsewhere:
        return _belongs(key, elsewhere[0])
    close = nearest(key, known)
    if close:
        return f"did you mean `{close}`?"
    if not table:
        close = nearest(key, (setting.key.rpartition(".")[2] for setting in SETTINGS), 0.8)
        if close:
            found = next(setting.key for setting in SETTINGS if setting.key.endswith("." + close))
            return f"did you mean `{found}`?"
    if key.lower() in _SYNONYMS:
        return f"did you mean `{_SYNONYMS[key.lower()]}`?"
    sections = {setting.key.partition(".")[0] for setting in SETTINGS}
    if key in sections and here:
        return f"[{key}] is a table of its own, not part of [{here}]"
    return f"it has: {', '.join(known)}" if known else None


def for_setting(key: str) -> str:
    """Return help for a dotted key that no setting has."""
    keys = [setting.key for setting in SETTINGS]
    leaf = key.rpartition(".")[2]
    for candidate in keys:
        if candidate.endswith("." + leaf):
            return f"did you mean {candidate}?"
    close = nearest(key, keys) or _SYNONYMS.get(key.lower())
    return f"did you mean {close}?" if close else "`coop schema` lists the settings"


def _belongs(key: str, setting: str) -> str:
    section = setting.rpartition(".")[0]
    return f"`{key}` belongs in [{section}]"
