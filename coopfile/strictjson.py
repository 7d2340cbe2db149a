"""JSON that can be read in one way only: whole numbers, and each key of an object once."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def loads(text: str | bytes, *, fractions: bool = False) -> Any:
    """Return what a text says. Raises ValueError, also for what is nested too deeply.

    ``fractions`` allows other than whole numbers.
    """
    try:
        return json.loads(
            text,
            parse_float=float if fractions else _refuse,
            parse_constant=_refuse,
            object_pairs_hook=_without_duplicates,
        )
    except RecursionError as error:
        raise ValueError(str(error)) from None


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number} is not a whole number")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"the key {key!r} stands twice in one object")
        table[key] = value
    return table
