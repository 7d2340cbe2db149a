"""Values made of others: lists, environment variables, back ends."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from coopfile.language.diagnostics import quoted
from coopfile.language.items import Variable
from coopfile.language.suggest import did_you_mean
from coopfile.language.value_type import BadValue, Problem, ValueType, check_string, describe, toml_string
from coopfile.language.words import Argument, Choice

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED = "COOP_"
# The kernel takes no string of the environment beyond 128 KiB.
_VALUE_MAX = 128 * 1024 - 1024


class ListOf(ValueType):
    """A list of values of one type. Typed: a tuple; sorted and without repetitions unless ``ordered``.

    The order of an unordered list is that of its items' texts (``str``), by code point.
    """

    takes_text = False

    def __init__(self, item: ValueType, ordered: bool) -> None:
        """Take the type of the items, and whether their order has a meaning."""
        self.item = item
        self.ordered = ordered

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "array", "items": self.item.schema()}

    def parse(self, raw: object) -> tuple[Any, ...]:
        """Return the items. Raises BadValue, with the problems of all items."""
        return self.arrange(self.parse_items(raw))

    def parse_items(self, raw: object) -> tuple[Any, ...]:
        """Return the items as they stand: one for each item of the raw list."""
        if not isinstance(raw, list | tuple):
            raise BadValue(f"expected an array, not {describe(raw)}", self._as_array(raw))
        items, problems = [], []
        for index, item in enumerate(raw):
            try:
                items.append(self.item.parse(item))
            except BadValue as error:
                problems += error.below(index)
        if not problems:
            problems = self.item.finish(items)
        if problems:
            raise BadValue.several(problems)
        return tuple(items)

    def _as_array(self, raw: object) -> str | None:
        if not isinstance(raw, str) or len(raw) > 80:
            return None
        words = [raw]
        if isinstance(self.item, Argument):
            try:
                words = shlex.split(raw)
            except ValueError:
                return None
        return f"write [{', '.join(map(toml_string, words))}]"

    def arrange(self, items: Sequence[Any]) -> tuple[Any, ...]:
        """Return items in their canonical order, without repetitions unless that is part of it."""
        return tuple(items) if self.ordered else tuple(sorted(set(items), key=str))

    def show(self, value: Sequence[Any]) -> str:
        """Return the list as a TOML array."""
        return f"[{', '.join(map(self.item.show, value))}]"


class Backends(ValueType):
    """``auto``, one back end, or several in order of preference. Typed: a tuple of str."""

    def __init__(self, *names: str) -> None:
        """Take the names that are known, ``auto`` among them."""
        self.names = names
        self._name = Choice(*names)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        name = self._name.schema()
        listed = {"type": "string", "enum": [name for name in self.names if name != "auto"]}
        array = {"type": "array", "items": listed, "minItems": 1, "uniqueItems": True}
        return {"anyOf": [name, {**array}, {"const": ["auto"]}]}

    def parse(self, raw: object) -> tuple[str, ...]:
        """Return the back ends in order. Raises BadValue."""
        if isinstance(raw, str):
            return (self._name.parse(raw),)
        if not isinstance(raw, list | tuple):
            raise BadValue(
                f"expected a string or an array, not {describe(raw)}",
                'such as "auto" or ["native", "podman"]',
            )
        found = ListOf(self._name, ordered=True).parse(raw)
        if not found:
            raise BadValue("the list names no back end", 'write "auto" for the first that will do')
        for index, name in enumerate(found):
            if name in found[:index]:
                raise BadValue(f"{quoted(name)} is in the list twice", None, (index,))
            if name == "auto" and len(found) > 1:
                raise BadValue('"auto" stands alone', "it is a list of back ends itself", (index,))
        return found

    def show(self, value: Sequence[str]) -> str:
        """Return one back end as a string, several as an array."""
        shown = [toml_string(name) for name in value]
        return shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"


class Environment(ValueType):
    """Variables by name: a string, or ``{ host = "NAME" }``. Typed: a tuple of ``Variable``, by name."""

    takes_text = False

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        name = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
        host = {
            "type": "object",
            "properties": {"host": {**name, "description": "The host's variable to take the value of."}},
            "required": ["host"],
            "additionalProperties": False,
        }
        return {
            "type": "object",
            "propertyNames": {"pattern": name["pattern"], "not": {"pattern": f"^{_RESERVED}"}},
            "additionalProperties": {"anyOf": [{"type": "string"}, host]},
        }

    def parse(self, raw: object) -> tuple[Variable, ...]:
        """Return the variables, sorted by name. Raises BadValue, with the problems of all of them."""
        if not isinstance(raw, dict):
            if raw == ():  # how the settings table writes an empty default
                return ()
            raise BadValue(
                f"expected a table, not {describe(raw)}", 'such as [env] and EDITOR = "vi" below it'
            )
        variables: list[Variable] = []
        problems: list[Problem] = []
        for name, value in raw.items():
            try:
                variables.append(self.parse_one(name, value))
            except BadValue as error:
                problems += error.below(name)
        if problems:
            raise BadValue.several(problems)
        return tuple(sorted(variables, key=lambda variable: variable.name))

    def parse_one(self, name: str, raw: object) -> Variable:
        """Return one variable. Raises BadValue."""
        _check_name(name)
        if name.startswith(_RESERVED):
            raise BadValue(
                f"{quoted(name)} is coop's own: names that begin with COOP_ are reserved", at_key=True
            )
        if isinstance(raw, dict):
            return Variable(name, host=self._host(name, raw))
        if isinstance(raw, int | float):
            shown = ("true" if raw else "false") if isinstance(raw, bool) else raw
            raise BadValue(f"the value of a variable is a string, not {describe(raw)}", f'write "{shown}"')
        value = check_string(raw, "the value of a variable", '"vi"', multiline=True)
        if len(value.encode()) > _VALUE_MAX:
            raise BadValue(f"the value of {name} is longer than {_VALUE_MAX} bytes")
        return Variable(name, value=value)

    def show(self, value: Sequence[Variable]) -> str:
        """Return the variables as a TOML inline table."""
        inner = ", ".join(f"{variable.name} = {self.show_one(variable)}" for variable in value)
        return f"{{ {inner} }}" if inner else "{}"

    def show_one(self, variable: Variable) -> str:
        """Return the value of one variable as TOML."""
        if variable.host is not None:
            return f"{{ host = {toml_string(variable.host)} }}"
        return toml_string(variable.value or "")

    @staticmethod
    def _host(name: str, raw: dict[str, Any]) -> str:
        problems = [
            Problem(
                f"{quoted(key)} is not known here",
                did_you_mean(key, ["host"]) or 'it has only host = "NAME"',
                (key,),
                True,
            )
            for key in raw
            if key != "host"
        ]
        if "host" not in raw and not problems:
            problems.append(
                Problem("the table is empty", f'write {{ host = "{name}" }} for the host\'s value', ())
            )
        if "host" in raw:
            try:
                host = check_string(raw["host"], "the name of a variable", f'"{name}"')
                _check_name(host)
            except BadValue as error:
                problems += [problem.replace(at_key=False) for problem in error.below("host")]
        if problems:
            raise BadValue.several(problems)
        return host


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        hint = "a name has letters, digits and _, and does not begin with a digit"
        if "=" in name:
            hint = f'write {name.partition("=")[0]} = "{name.partition("=")[2]}"'
        raise BadValue(f"{quoted(name)} is not the name of a variable", hint, at_key=True)
