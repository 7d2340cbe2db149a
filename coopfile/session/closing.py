"""Closing: at the end of a ``with``, and of many things at once."""

from __future__ import annotations

from coopfile.errors import CoopError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import TypeVar

    from typing_extensions import Self

    Part = TypeVar("Part")


class Closing:
    """Is closed at the end of a ``with``; what goes wrong then does not hide the reason for leaving it."""

    def close(self) -> None:
        """Let go of everything. Raises CoopError."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except CoopError:
            if error is None:
                raise


def each(parts: Iterable[Part], action: Callable[[Part], object]) -> None:
    """Do something with all parts. Raises the first CoopError, after the last part."""
    failed = None
    for part in parts:
        try:
            action(part)
        except CoopError as error:
            failed = failed or error
    if failed is not None:
        raise failed
