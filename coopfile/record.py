"""Frozen records: what dataclasses give, without the 9 ms that importing them costs.

Everything on the path of a cached ``coop run`` is made of these, so this module
imports nothing at run time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_: object):
        """Stand in for PEP 681's marker, which only type checkers read."""
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class Record:
    """A frozen value with the fields that its class annotates, in that order.

    A class attribute of a field's name is its default. Records of one class are
    equal when their fields are, and hash alike.
    """

    _fields: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        known = cls._fields
        cls._fields = (
            *known,
            *[name for name in cls.__annotations__ if name[0] != "_" and name not in known],
        )

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = self._fields
        state = self.__dict__
        if len(values) > len(fields):
            raise TypeError(f"{type(self).__name__} takes {len(fields)} fields, got {len(values)}")
        state.update(zip(fields, values))  # noqa: B905 - `strict` costs a third more
        if len(values) == len(fields) and not named:
            return
        for name, value in named.items():
            if name not in fields or name in state:
                raise TypeError(f"{type(self).__name__} has no such field, or has it twice: {name}")
            state[name] = value
        for name in fields[len(values) :]:
            if name not in state:
                try:
                    state[name] = getattr(type(self), name)
                except AttributeError:
                    raise TypeError(f"{type(self).__name__} needs {name}") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *(self.__dict__[name] for name in self._fields)))

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self._fields)
        return f"{type(self).__name__}({inner})"

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return type(self)(**{**self.__dict__, **changes})
