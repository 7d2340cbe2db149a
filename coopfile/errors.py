"""The errors that people see. Each carries its facts; none ever shows a traceback."""

from __future__ import annotations


class CoopError(Exception):
    """Something that a person has to know: what is wrong, and how to mend it.

    ``status`` is the exit status of the command line: 125 for coop's own
    failures, 2 for wrong usage (design section 12).
    """

    status = 125

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class SettingError(CoopError):
    """This machine cannot give what item ``number`` of the setting ``key`` asks for."""

    def __init__(self, message: str, remedy: str | None, key: str, number: int) -> None:
        super().__init__(message, remedy)
        self.key = key
        self.number = number


class UsageError(CoopError):
    """The command line asks for something that does not exist."""

    status = 2
