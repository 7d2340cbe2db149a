"""Plain values: one of a few words, true or false, names, commands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from coopfile.language.diagnostics import quoted
from coopfile.language.suggest import nearest
from coopfile.language.value_type import BadValue, Problem, ValueType, check_string, describe

_PACKAGE = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@._+~^=<>!:/,\[\]*-]*", re.ASCII)
_RUNTIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_IDENTITY = re.compile(r"[a-z][a-z0-9_-]{0,63}:\S{1,256}")


class Choice(ValueType):
    """One of a few words. Typed: a str, one of ``values``; an alias comes out as what it stands for."""

    def __init__(self, *values: str, aliases: Mapping[str, str] | None = None) -> None:
        """Take the words, and other names for some of them."""
        self.values = values
        self.aliases = dict(aliases or {})

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "enum": [*self.values, *self.aliases]}

    def parse(self, raw: object) -> str:
        """Return the word. Raises BadValue."""
        allowed = "it is one of " + ", ".join(map(quoted, self.values))
        if not isinstance(raw, str):
            raise BadValue(f"expected a string, not {describe(raw)}", allowed)
        found = self.aliases.get(raw, raw)
        if found not in self.values:
            near = nearest(raw, [*self.values, *self.aliases])
            hint = f"did you mean {quoted(near)}? {allowed}" if near else allowed
            raise BadValue(f"{quoted(raw)} is not known here", hint)
        return found


class Flag(ValueType):
    """True or false. Typed: a bool."""

    takes_text = False

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "boolean"}

    def parse(self, raw: object) -> bool:
        """Return the value. Raises BadValue."""
        if not isinstance(raw, bool):
            word = raw.strip().lower() if isinstance(raw, str) else ""
            meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(word, word)
            hint = f"write {meant}, without quotes" if meant in ("true", "false") else "write true or false"
            raise BadValue(f"expected true or false, not {describe(raw)}", hint)
        return raw

    def show(self, value: bool) -> str:
        """Return the value."""
        return "true" if value else "false"


class ShellCommand(ValueType):
    """A command for the shell, of one or more lines. Typed: a str, as it was written."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "pattern": r"\S"}

    def parse(self, raw: object) -> str:
        """Return the command. Raises BadValue."""
        text = check_string(raw, "a shell command", '"npm install"', multiline=True)
        if not text.strip():
            raise BadValue("a shell command may not be empty")
        return text


class Argument(ValueType):
    """A program, or an argument of one: any text but control characters. Typed: a str."""

    def parse(self, raw: object) -> str:
        """Return the argument. Raises BadValue."""
        return check_string(raw, "an argument", '"--verbose"', multiline=True)

    def finish(self, items: Sequence[str]) -> list[Problem]:
        """Return what is wrong with the program, which is the first item."""
        if items and not items[0].strip():
            return [
                Problem(
                    "the program has no name", "the first item is the program, the others its arguments", (0,)
                )
            ]
        return []


class PackageName(ValueType):
    """A package for a package manager, with its version if it has to be one. Typed: a str.

    As the manager takes it on its command line: ``g++``, ``libfoo:amd64``,
    ``pkg=1.2-3``, ``pytest==8.4.1``, ``uvicorn[standard]>=0.30``, ``@scope/pkg@^1.2``.
    It begins with a letter, a digit or @, so that it is never taken for an option.
    """

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "pattern": r"^[A-Za-z0-9@]\S*$"}

    def parse(self, raw: object) -> str:
        """Return the name. Raises BadValue."""
        text = check_string(raw, "a package", '"ripgrep"')
        if text.startswith("-"):
            raise BadValue(
                f"{quoted(text)} is an option, not a package", "options go into a command of setup.run"
            )
        if any(char.isspace() for char in text):
            raise BadValue(f"{quoted(text)} has a space in it", "write one package for each string")
        if not _PACKAGE.fullmatch(text):
            odd = next((char for char in text[1:] if not _PACKAGE.fullmatch(f"a{char}")), text[0])
            raise BadValue(
                f"{quoted(text)} is not a package: it has {quoted(odd)} in it"
                if odd != text[0]
                else f"{quoted(text)} is not a package: it begins with {quoted(odd)}",
                "a name, and a version if need be, such as pytest==8.4.1; all else belongs in setup.run",
            )
        return text


class RuntimeName(ValueType):
    """The name of an OCI runtime that a container engine knows. Typed: a str."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$"}

    def parse(self, raw: object) -> str:
        """Return the name. Raises BadValue."""
        text = check_string(raw, "an OCI runtime", '"runsc"')
        if not _RUNTIME.fullmatch(text):
            raise BadValue(
                f"{quoted(text)} is not a runtime's name",
                "it has letters, digits, ., _ and -; a path is configured in the engine, under a name",
            )
        return text


class UserName(ValueType):
    """The name of a user. Typed: a str."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"}

    def parse(self, raw: object) -> str:
        """Return the name. Raises BadValue."""
        text = check_string(raw, "a user's name", '"alice"')
        if not _USER.fullmatch(text):
            raise BadValue(
                f"{quoted(text)} is not a user's name",
                "it has up to 64 letters, digits, ., _ and -, and begins with a letter or digit",
            )
        return text


class Identity(ValueType):
    """Who somebody is to a channel: ``channel:sender``. Typed: a str, matched as a whole."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "pattern": r"^[a-z][a-z0-9_-]*:\S+$"}

    def parse(self, raw: object) -> str:
        """Return the identity. Raises BadValue."""
        text = check_string(raw, "an identity", '"signal:+15555550100"')
        if text.endswith("*"):
            raise BadValue(
                f"{quoted(text)} would match nobody", "name each identity; unknown ones are public"
            )
        if not text.isprintable() or not _IDENTITY.fullmatch(text):
            raise BadValue(
                f"{quoted(text)} is not an identity",
                "it is channel:sender, such as terminal:default, without spaces",
            )
        return text
