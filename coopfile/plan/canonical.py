"""The canonical JSON of a plan, and its digest: the same bytes on every machine and Python."""

from __future__ import annotations

import hashlib
import json

from coopfile import strictjson
from coopfile.errors import CoopError
from coopfile.language.diagnostics import visible
from coopfile.language.settings import SETTINGS
from coopfile.language.values import BadValue
from coopfile.plan.model import Plan, from_data, leaf, to_data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from jsonschema.exceptions import ValidationError

    from coopfile.language.settings import Setting

_SHOWN_PROBLEMS = 5
_SHOWN_LENGTH = 300


_known: dict[int | None, tuple[Plan, str]] = {}  # the last plan, by indent: many sessions may be of one


def to_json(plan: Plan, *, indent: int | None = 2) -> str:
    """Return the one JSON text of a plan: ASCII, sorted keys, two spaces, no newline at the end.

    Without ``indent`` it is the same in one line.
    """
    last = _known.get(indent)
    if last is None or last[0] is not plan:  # a plan does not change
        last = _known[indent] = plan, _to_json(plan, indent)
    return last[1]


def _to_json(plan: Plan, indent: int | None) -> str:
    return json.dumps(to_data(plan), sort_keys=True, indent=indent, ensure_ascii=True, allow_nan=False)


def digest(plan: Plan) -> str:
    """Return ``sha256:<64 hex digits>`` over the canonical JSON of a plan."""
    return "sha256:" + hashlib.sha256(to_json(plan).encode("ascii")).hexdigest()


def from_json(text: str | bytes, name: str = "the plan") -> Plan:
    """Build a plan of its JSON; ``name`` says in errors where the text came from.

    The text is as untrusted as a Coopfile is: only what the language could have
    said is accepted. Raises CoopError when it is not JSON, or not such a plan.
    """
    try:
        data = strictjson.loads(text)
    except ValueError as error:
        raise _not_a_plan(name, [f"it is not JSON of the right kind: {error}"]) from None
    problems = _violations(data)
    if problems:
        raise _not_a_plan(name, problems)
    plan = from_data(data)
    problems = [problem for setting in SETTINGS for problem in _unspeakable(setting, leaf(plan, setting.key))]
    access = plan.access
    if access is not None and not (_is_canonical(access.tools) and _is_canonical(access.stores)):
        problems.append("access: a list is not in canonical order")
    if problems:
        raise _not_a_plan(name, problems)
    return plan


def _violations(data: object) -> list[str]:
    """Name what in the data is against the schema."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
    from jsonschema.validators import extend

    from coopfile.plan.schema import plan_schema

    # Its own compares every two items of a list, of which there may be tens of thousands.
    validator = extend(Draft202012Validator, {"uniqueItems": _repeated})  # type: ignore[no-untyped-call]
    problems = []
    for error in validator(plan_schema()).iter_errors(data):
        # Of an "anyOf", the branch that the data comes nearest to.
        inner = best_match(iter([error])) or error
        path = ".".join(map(str, inner.absolute_path))
        problems.append(f"{path}: {inner.message}" if path else inner.message)
    return problems


def _repeated(_validator: Any, unique: bool, items: Any, _schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if unique and isinstance(items, list):
        texts = {json.dumps(item, sort_keys=True) for item in items}
        if len(texts) < len(items):
            yield ValidationError(f"{items!r} has non-unique elements")


def _unspeakable(setting: Setting, value: Any) -> list[str]:
    """Name what in a typed value no Coopfile could have said: the language has the last word."""
    import tomli

    if value is None:
        return []
    try:
        raw = tomli.loads(f"value = {setting.type.show(value)}")["value"]
        parsed = setting.type.parse(raw)
    except tomli.TOMLDecodeError:
        return [f"{setting.key}: the value cannot be written in a Coopfile"]
    except BadValue as error:
        return [f"{setting.key}: {problem.message}" for problem in error.problems]
    return [] if parsed == value else [f"{setting.key}: the value is not in canonical form"]


def _is_canonical(items: tuple[str, ...]) -> bool:
    return list(items) == sorted(set(items))


def _not_a_plan(name: str, problems: list[str]) -> CoopError:
    lines = [
        visible(problem if len(problem) <= _SHOWN_LENGTH else problem[:_SHOWN_LENGTH] + "…")
        for problem in problems[:_SHOWN_PROBLEMS]
    ]
    if len(problems) > _SHOWN_PROBLEMS:
        lines.append(f"and {len(problems) - _SHOWN_PROBLEMS} more")
    message = "\n  ".join([f"{visible(name)} is not a plan:", *lines])
    return CoopError(message, "plans are written by `coop plan --json`, with the same version of coop")
