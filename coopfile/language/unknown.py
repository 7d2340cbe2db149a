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


def for_key(table: Sequence[str], key: str, known: Iterable[str], within: str = "") -> str | None:
    """Return help for a key that its table does not have.

    ``table`` is the path of the table, empty at the top; ``known`` are the keys that
    it does have; ``within`` names what has settings of its own, if it is not the file.
    A key that is right somewhere else is sent there.
    """
    known = list(known)
    sections = {setting.key.partition(".")[0] for setting in SETTINGS}
    elsewhere = next((setting.key for setting in SETTINGS if setting.key.endswith("." + key)), None)
    if key in _TOP and within:
        return f"{key} stands at the top of the file, not in {within}"
    if key in _TOP:
        return f"{key} stands at the top of the file, above the first [table], or is a table of its own"
    if key in sections:
        return f"[{key}] is a table of its own, not part of [{'.'.join(table)}]"
    if elsewhere:
        return f"{key} belongs in [{elsewhere.rpartition('.')[0]}]"
    close = nearest(key, known)
    if close:
        return f"did you mean [{close}]?" if close in sections else f"did you mean {close}?"
    leaves = {setting.key.rpartition(".")[2]: setting.key for setting in SETTINGS}
    close = nearest(key, leaves, 0.8)
    if close:
        return f"did you mean {leaves[close]}?"
    if key.lower() in _SYNONYMS:
        return f"did you mean {_SYNONYMS[key.lower()]}?"
    return f"it has {', '.join(known)}"


def for_user(key: str, known: Iterable[str]) -> str:
    """Return help for a key that a user does not have."""
    known = list(known)
    close = nearest(key, known)
    if close:
        return f"did you mean {close}?"
    if any(setting.key.partition(".")[0] == key for setting in SETTINGS):
        return f"settings of a user go below override, as in [users.override.{key}]"
    return f"it has {', '.join(known)}"


def for_setting(key: str) -> str:
    """Return help for a dotted key that no setting has."""
    keys = [setting.key for setting in SETTINGS]
    leaf = key.rpartition(".")[2]
    for candidate in keys:
        if candidate.endswith("." + leaf):
            return f"did you mean {candidate}?"
    close = nearest(key, keys) or _SYNONYMS.get(key.lower())
    return f"did you mean {close}?" if close else "`coop schema` lists the settings"
