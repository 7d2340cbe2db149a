"""The errors that people see. Each carries its facts; none ever shows a traceback."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class CoopError(Exception):
    """Something that a person has to know: what is wrong, and how to mend it.

    ``status`` is the exit status of the command line: 125 for coop's own
    failures, 2 for wrong usage (design section 12). ``decision`` is what the
    audit log calls it, where coop decided against something: denied, refused
    (nobody could be asked) or declined (somebody was, and said no).
    """

    status = 125
    decision: str | None = None

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        """Be copied with all facts, whatever a kind of error takes to be made."""
        return _again, (type(self), self.args), self.__dict__


class SettingError(CoopError):
    """This machine cannot give what item ``number`` of the setting ``key`` asks for."""

    def __init__(self, message: str, remedy: str | None, key: str, number: int) -> None:
        super().__init__(message, remedy)
        self.key = key
        self.number = number


class NotAllowedError(CoopError):
    """A rule says no: the caller's trust, or what the plan asks of this machine."""

    decision = "denied"


class UsageError(CoopError):
    """The command line asks for something that does not exist."""

    status = 2


def _again(kind: type[CoopError], words: tuple[Any, ...]) -> CoopError:
    """Return an error of that kind without what its ``__init__`` does; its facts follow."""
    error = kind.__new__(kind)
    error.args = words
    return error
