"""Which registries the owner of this machine has said to be without TLS: containers-registries.conf(5)."""

from __future__ import annotations

import os

import tomli

from coopfile import wholefile
from coopfile.errors import CoopError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_SYSTEM = "/etc/containers/registries.conf"
_LARGEST = 1 << 20  # bytes
_REMEDY = "mend it: containers-registries.conf(5)"


def insecure(environment: Mapping[str, str], system: str = _SYSTEM) -> tuple[str, ...]:
    """Return the registries with ``insecure = true``, as references name them: a host, maybe with a port.

    ``environment`` is that of ``own_environment``. Entries that speak of a part of a registry,
    of several or of another place do not count: what they mean stays with TLS. Raises CoopError
    for a file that cannot be read.
    """
    found: dict[str, bool] = {}
    for path in _files(environment, system):
        for entry in _entries(path):
            location = entry.get("location", entry.get("prefix"))
            if isinstance(location, str) and entry.get("prefix", location) == location:
                found[location.lower()] = entry.get("insecure") is True
    return tuple(name for name, plain in found.items() if plain and "/" not in name and "*" not in name)


def _files(environment: Mapping[str, str], system: str) -> Iterator[str]:
    """Yield the files that count; what a later one says replaces what an earlier one does."""
    alone = environment.get("CONTAINERS_REGISTRIES_CONF")
    if alone:
        yield alone
        return
    home = environment.get("HOME", "")
    config = environment.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    own = f"{config}/containers/registries.conf" if config else ""
    yield own if own and os.path.exists(own) else system
    for directory in (f"{system}.d", f"{own}.d" if own else ""):
        try:
            names = sorted(os.listdir(directory)) if directory else []
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise CoopError(f"{directory} cannot be read: {error.strerror}") from None
        yield from (f"{directory}/{name}" for name in names if name.endswith(".conf"))


def _entries(path: str) -> list[dict[str, Any]]:
    try:
        body = wholefile.read(path, _LARGEST)
    except OSError as error:
        raise CoopError(f"{path} cannot be read: {error.strerror}", _REMEDY) from None
    if body is None:
        return []
    try:
        content = tomli.loads(body.decode())
    except (ValueError, RecursionError) as error:  # the latter of arrays in arrays, from tomli itself too
        raise CoopError(f"{path} is not TOML: {error}", _REMEDY) from None
    entries: Any = content.get("registry", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CoopError(f"{path} has no list of registries", _REMEDY)
    return entries
