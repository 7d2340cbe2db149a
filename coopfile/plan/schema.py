"""The JSON Schema of plans, made of the model and the settings table.

``python -m coopfile.plan.schema`` prints what ``schema/plan.schema.json`` holds.
"""

from __future__ import annotations

from coopfile.language import items
from coopfile.language.images import TRANSPORTS
from coopfile.language.items import HostPattern, LocalImage, PublishedPort, Variable
from coopfile.language.settings import BY_KEY, TRUST_LEVELS
from coopfile.language.values import Backends, Choice, ListOf
from coopfile.plan.model import PLAN_VERSION, Access, Plan
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from coopfile.language.values import ValueType

IDENTIFIER = f"urn:coopfile:plan:{PLAN_VERSION}"

_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_TEXTS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}

# What neither the types of the model's fields nor the settings table say.
_FIELDS: dict[tuple[type[Record], str], dict[str, Any]] = {
    (Access, "trust"): {"enum": list(TRUST_LEVELS)},
    (Access, "place"): {"enum": ["direct", "group"]},
    (Access, "tools"): _TEXTS,
    (Access, "stores"): _TEXTS,
    (HostPattern, "port"): {**_PORT, "type": ["integer", "null"]},
    (LocalImage, "transport"): {"enum": list(TRANSPORTS)},
    (PublishedPort, "host"): _PORT,
    (PublishedPort, "sandbox"): _PORT,
    (Plan, "version"): {"const": PLAN_VERSION},
}


def plan_schema() -> dict[str, Any]:
    """Return the schema (2020-12) that canonical plans satisfy: every key required, no other allowed."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": IDENTIFIER,
        "title": "Coop plan",
        "description": "What a sandbox may have, resolved and portable. Sizes are in bytes, durations in "
        "milliseconds, processors in thousandths. Lists whose order means nothing are sorted.",
        **_record(Plan, ""),
    }


def _record(record: type[Record], prefix: str) -> dict[str, Any]:
    from typing import get_type_hints

    hints = get_type_hints(record, localns=vars(items))  # the model names them without importing them
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            name: _FIELDS.get((record, name)) or _leaf(hints[name], f"{prefix}{name}")
            for name in record._fields
        },
        "required": list(record._fields),
        "additionalProperties": False,
    }
    if record is Variable:
        schema["oneOf"] = [{"properties": {name: {"type": "string"}}} for name in ("value", "host")]
    return schema


def _leaf(hint: Any, key: str) -> dict[str, Any]:
    setting = BY_KEY.get(key)
    if setting is None:
        return _typed(hint, key, None)
    schema = _typed(hint, key, setting.type)
    if isinstance(setting.type, Backends):
        schema |= {"minItems": 1, "uniqueItems": True}
        schema["items"]["enum"] = list(setting.type.names)
    if isinstance(setting.type, ListOf) and not setting.type.ordered:
        schema["uniqueItems"] = True
    return {"description": setting.help, **schema}


def _typed(hint: Any, key: str, kind: ValueType | None) -> dict[str, Any]:
    """Return the schema of a typed value; ``kind`` adds the bounds and patterns of the language."""
    from typing import get_args, get_origin

    if get_origin(hint) is tuple:
        item = kind.item if isinstance(kind, ListOf) else None
        return {"type": "array", "items": _typed(get_args(hint)[0], key, item)}
    if isinstance(hint, type) and issubclass(hint, Record):
        return _record(hint, f"{key}.")
    if hint is type(None):
        return {"type": "null"}
    if hint is bool:
        return {"type": "boolean"}
    if hint is int:
        bounds = {name: getattr(kind, name) for name in ("minimum", "maximum") if hasattr(kind, name)}
        return {"type": "integer", "minimum": 1, **bounds}
    if hint is str:
        if isinstance(kind, Choice):
            return {"type": "string", "enum": list(kind.values)}
        return {"type": "string"} if kind is None else kind.schema()
    return {"anyOf": [_typed(choice, key, kind) for choice in get_args(hint)]}


def main() -> None:
    """Print the schema, as ``schema/plan.schema.json`` holds it."""
    import json

    print(json.dumps(plan_schema(), indent=2))


if __name__ == "__main__":
    main()
