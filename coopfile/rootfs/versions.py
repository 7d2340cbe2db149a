"""Which versions of the packages that were asked for a build has installed.

Asked in the image's own words: what answers is the image, so nothing of it is trusted
to be more than short words.
"""

from __future__ import annotations

import json
import re
from shlex import join

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# A name before what a manager takes behind it: versions, architectures, releases, extras.
_NAME = re.compile(r"@?[A-Za-z0-9][^\s@=<>~!\[:/,;]*(?:/[^\s@=<>~!\[:,;]+)?")
_APT_NAME = re.compile(r"[^=/:]+")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~:_^-]{0,99}")
_APK = re.compile(r"(.+)-([^-]+-r[0-9]+)")
_CARGO = re.compile(r"(\S+) v(\S+?)(?: \(.*\))?:")


def query(manager: str, packages: Sequence[str]) -> str:
    """Return a command for /bin/sh that lists what a manager has installed."""
    if manager == "apt":
        return join(
            ["dpkg-query", "--show", "--showformat=${Package} ${Version}\\n", *_names(manager, packages)]
        )
    if manager == "dnf":
        return join(
            ["rpm", "-q", "--queryformat", "%{NAME} %{VERSION}-%{RELEASE}\\n", *_names(manager, packages)]
        )
    return {
        "apk": "apk info -v",
        "pip": "python3 -m pip list --format=freeze --disable-pip-version-check",
        "npm": "npm ls --global --prefix=/usr/local --depth=0 --json",
        "cargo": "cargo install --list --root=/usr/local",
    }[manager]


def parse(manager: str, packages: Sequence[str], text: str) -> dict[str, str]:
    """Return the versions of those packages that a manager's list names, by name."""
    found = {
        _same(manager, name): version
        for name, version in _PARSERS[manager](text)
        if _VERSION.fullmatch(version)
    }
    names = _names(manager, packages)
    return {name: found[_same(manager, name)] for name in names if _same(manager, name) in found}


def _names(manager: str, packages: Sequence[str]) -> list[str]:
    """Return the packages without what stands behind their names."""
    pattern = _APT_NAME if manager == "apt" else _NAME
    found = (pattern.match(package) for package in packages)
    return sorted({match[0] for match in found if match})


def _same(manager: str, name: str) -> str:
    """Return what two names of one package have in common: PEP 503 for pip."""
    return re.sub(r"[-_.]+", "-", name).lower() if manager == "pip" else name


def _words(separator: str) -> Callable[[str], Iterator[tuple[str, str]]]:
    def parse(text: str) -> Iterator[tuple[str, str]]:
        for line in text.splitlines():
            name, _, version = line.partition(separator)
            yield name, version

    return parse


def _lines(pattern: re.Pattern[str]) -> Callable[[str], Iterator[tuple[str, str]]]:
    def parse(text: str) -> Iterator[tuple[str, str]]:
        for line in text.splitlines():
            match = pattern.fullmatch(line)
            if match:
                yield match[1], match[2]

    return parse


def _npm(text: str) -> Iterator[tuple[str, str]]:
    try:
        packages = json.loads(text)["dependencies"]
        for name, about in packages.items():
            if isinstance(about, dict) and isinstance(about.get("version"), str):
                yield name, about["version"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return


_PARSERS = {
    "apt": _words(" "),
    "apk": _lines(_APK),
    "dnf": _words(" "),
    "pip": _words("=="),
    "npm": _npm,
    "cargo": _lines(_CARGO),
}
