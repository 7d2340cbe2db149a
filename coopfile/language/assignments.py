"""Settings from outside files: ``COOP_*`` variables and ``--set key=value``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coopfile.language import unknown
from coopfile.language.composite import Backends, Environment, ListOf
from coopfile.language.diagnostics import WHOLE, Diagnostic, Position, quoted
from coopfile.language.merging import Layer, Origin, Valued, merge
from coopfile.language.settings import BY_KEY, SETTINGS
from coopfile.language.suggest import nearest
from coopfile.language.syntax import parse_value
from coopfile.language.validate import typed
from coopfile.language.value_type import BadValue, ValueType

PREFIX = "COOP_"

# What coop itself sets inside a sandbox; a coop that runs there is not to trip over it.
RESERVED = ("COOP_SESSION", "COOP_WORKSPACE", "COOP_CREATED")

VARIABLES = {
    PREFIX + setting.key.replace(".", "_").upper(): setting for setting in SETTINGS if setting.key != "env"
}


def from_environment(environment: Mapping[str, str]) -> tuple[Layer, list[Diagnostic]]:
    """Return the layer of the ``COOP_*`` variables, and what is wrong with them.

    An empty variable counts as absent. A string is taken as it is; a number, true
    or false as TOML has it; a list as a TOML array or separated by commas.
    """
    layer: dict[str, Valued] = {}
    problems = []
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in RESERVED or not environment[name]:
            continue
        setting = VARIABLES.get(name)
        if setting is None:
            problems.append(_problem("unknown-key", name, *_unknown_variable(name)))
            continue
        try:
            layer[setting.key] = _interpret(
                setting.type, environment[name], Origin("environment", name), quotes=False
            )
        except BadValue as error:
            problems += [_problem("value", name, one.message, one.help) for one in error.problems]
    return layer, problems


def from_assignments(assignments: Iterable[str]) -> tuple[Layer, list[Diagnostic]]:
    """Return the layer of ``key=value`` texts, the later over the earlier, and what is wrong with them.

    A value is TOML if that gives what the key takes, and otherwise a string, or a
    list separated by commas. ``env.NAME=value`` sets a variable.
    """
    layer: Layer = {}
    problems = []
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        key = key.strip()
        name = f"--set {key}"
        try:
            if not equals:
                raise BadValue(
                    f"expected key=value, not {quoted(assignment)}", "such as --set network.mode=none"
                )
            layer = merge(layer, _assigned(key, value, Origin("command line", name)))
        except BadValue as error:
            shown = name if equals else "--set"
            problems += [_problem("value", shown, one.message, one.help) for one in error.problems]
    return layer, problems


def _assigned(key: str, value: str, origin: Origin) -> Layer:
    if key.startswith("env."):
        return {"env": _variable(key[len("env.") :], value, origin)}
    setting = BY_KEY.get(key)
    if setting is None:
        raise BadValue(f"there is no setting {quoted(key)}", unknown.for_setting(key))
    return {key: _interpret(setting.type, value, origin, quotes=True)}


def _variable(name: str, value: str, origin: Origin) -> Valued:
    kind = Environment()
    is_toml, raw = parse_value(value)
    given = raw if is_toml and isinstance(raw, str | dict) else value
    return Valued((kind.parse_one(name, given),), (origin,))


def _interpret(kind: ValueType, text: str, origin: Origin, quotes: bool) -> Valued:
    """Parse a text as a value; with ``quotes``, a TOML string stands for what is in it. Raises BadValue."""
    is_toml, raw = parse_value(text.strip())

    def parse(given: object) -> Valued:
        return typed(kind, given, lambda _: origin)

    if isinstance(kind, ListOf | Backends):
        if is_toml and isinstance(raw, list):
            return parse(raw)
        one = raw if quotes and is_toml and isinstance(raw, str) else text
        if isinstance(kind, Backends) and "," not in one:
            return parse(one.strip())
        if isinstance(kind, ListOf) and kind.ordered:
            return parse(one)  # an array: commas may be part of a command
        return parse([item for part in one.split(",") if (item := part.strip())])
    if kind.takes_text:
        return parse(raw if quotes and is_toml and isinstance(raw, str) else text)
    return parse(raw if is_toml else text)


def _unknown_variable(name: str) -> tuple[str, str]:
    if name == "COOP_ENV" or name.startswith("COOP_ENV_"):
        variable = name[len("COOP_ENV_") :] or "NAME"
        return "the environment does not set [env]", f"use --set env.{variable}=value"
    near = nearest(name, VARIABLES)
    help = (
        f"did you mean {near}?"
        if near
        else "names that begin with COOP_ are settings, such as COOP_NETWORK_MODE"
    )
    return "no setting has this name", help


def _problem(code: str, source: str, message: str, help: str | None) -> Diagnostic:
    return Diagnostic("error", code, message, help, Position(source, *WHOLE))
