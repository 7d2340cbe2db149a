"""Numbers with and without units: sizes, durations, counts, processors."""

from __future__ import annotations

import decimal
import re
from typing import Any

from coopfile.language.diagnostics import quoted
from coopfile.language.value_type import BadValue, ValueType, check_string, describe

_SIZES = {"t": 1 << 40, "g": 1 << 30, "m": 1 << 20, "k": 1 << 10, "b": 1}
_SIZE = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?([bkmgt])", re.IGNORECASE | re.ASCII)
_NEARLY_SIZE = re.compile(
    r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt])(?:i?b|ib?ytes?)?\s*", re.IGNORECASE | re.ASCII
)

_TIMES = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,9})?)"
_DURATION = re.compile(
    "".join(rf"(?:{_NUMBER}{unit})?" for unit in ("h", "m(?!s)", "s", "ms")), re.IGNORECASE | re.ASCII
)
_NEARLY_DURATION = re.compile(
    r"\s*([0-9]+(?:\.[0-9]+)?)\s*(h|m|s)(?:(?:ou)?rs?|in(?:ute)?s?|ec(?:ond)?s?)\s*", re.IGNORECASE | re.ASCII
)


class Size(ValueType):
    """A number of bytes: ``"2g"``, ``"1.5m"``, ``"100k"``, ``"4096b"``. Typed: an int, in bytes.

    The units are powers of 1024, in either case; one is required, so that ``2`` is
    never taken for bytes when gigabytes were meant. What comes out as a fraction of
    a byte is rounded down. Nothing else is accepted, but ``"2 gb"`` and the like
    are answered with the right spelling.
    """

    _rule = "a size is a number and one of the units k, m, g, t (powers of 1024) or b (bytes)"

    def __init__(self, minimum: str = "1b", maximum: str = "8191t") -> None:
        """Take the bounds, which are allowed themselves, as they are written in a Coopfile."""
        self._minimum_text, self._maximum_text = minimum, maximum
        self.minimum, self.maximum = self._bytes(minimum), self._bytes(maximum)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?[bkmgtBKMGT]$"}

    def parse(self, raw: object) -> int:
        """Return the number of bytes. Raises BadValue."""
        if isinstance(raw, int) and not isinstance(raw, bool):
            if raw <= 0:
                raise BadValue(f"{describe(raw)} is too little", f"the least is {quoted(self._minimum_text)}")
            bytes_ = f": {raw} bytes are {self.show(raw)}" if self.minimum <= raw <= self.maximum else ""
            raise BadValue(f"{describe(raw)} has no unit", f'write a string such as "2g"{bytes_}')
        text = check_string(raw, "a size", '"2g"')
        if not _SIZE.fullmatch(text):
            near = _NEARLY_SIZE.fullmatch(text)
            hint = f"write {quoted((near[1] + near[2]).lower())}; " if near else ""
            if re.fullmatch(r"-[0-9].*", text):
                raise BadValue(f"{quoted(text)} is negative", f"the least is {quoted(self._minimum_text)}")
            raise BadValue(f"{quoted(text)} is not a size", f"{hint}{self._rule}")
        size = self._bytes(text)
        if size < self.minimum:
            raise BadValue(f"{quoted(text)} is too little", f"the least is {quoted(self._minimum_text)}")
        if size > self.maximum:
            raise BadValue(f"{quoted(text)} is too much", f"the most is {quoted(self._maximum_text)}")
        return size

    def show(self, value: int) -> str:
        """Return the shortest exact spelling: 2147483648 is ``"2g"``."""
        unit = next(unit for unit, factor in _SIZES.items() if value % factor == 0)
        return f'"{value // _SIZES[unit]}{unit}"'

    @staticmethod
    def _bytes(text: str) -> int:
        match = _SIZE.fullmatch(text)
        assert match, text
        whole, fraction, unit = match[1], match[2] or "", match[3].lower()
        size: int = int(whole + fraction) * _SIZES[unit] // 10 ** len(fraction)
        return size


class Duration(ValueType):
    """A time: ``"120s"``, ``"2m"``, ``"1h30m"``, ``"500ms"``. Typed: an int, in milliseconds.

    The units are h, m, s and ms, from the largest to the smallest, each at most
    once; one is required. At least a millisecond, at most a week.
    """

    maximum = 168 * _TIMES["h"]
    _rule = 'a duration is a number and a unit, h, m, s or ms, such as "90s" or "1h30m"'

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?([mM][sS]|[hmsHMS]))+$"}

    def parse(self, raw: object) -> int:
        """Return the number of milliseconds. Raises BadValue."""
        if isinstance(raw, int) and not isinstance(raw, bool):
            if raw <= 0:
                raise BadValue(f"{describe(raw)} is too little", 'the least is "1ms"')
            hint = f'write "{raw}s" if it is seconds' if raw <= 604800 else self._rule
            raise BadValue(f"{describe(raw)} has no unit", hint)
        text = check_string(raw, "a duration", '"120s"')
        match = _DURATION.fullmatch(text)
        if not match:
            near = _NEARLY_DURATION.fullmatch(text)
            hint = f"write {quoted((near[1] + near[2]).lower())}; " if near else ""
            if re.fullmatch(r"-[0-9].*", text):
                raise BadValue(f"{quoted(text)} is negative", 'the least is "1ms"')
            raise BadValue(f"{quoted(text)} is not a duration", f"{hint}{self._rule}")
        parts = zip(match.groups(), _TIMES.values(), strict=True)
        time = sum(int(decimal.Decimal(number) * factor) for number, factor in parts if number)
        if time < 1:
            raise BadValue(f"{quoted(text)} is no time at all", 'the least is "1ms"')
        if time > self.maximum:
            raise BadValue(f"{quoted(text)} is too long", f"the most is {self.show(self.maximum)}")
        return time

    def show(self, value: int) -> str:
        """Return the spelling without zeros: 90000 is ``"1m30s"``."""
        parts = []
        for unit, factor in _TIMES.items():
            count, value = divmod(value, factor)
            parts.append(f"{count}{unit}" if count else "")
        return f'"{"".join(parts)}"'


class Count(ValueType):
    """A whole number within bounds that are allowed themselves. Typed: an int."""

    takes_text = False

    def __init__(self, minimum: int = 1, maximum: int = 2**31 - 1) -> None:
        """Take the bounds."""
        self.minimum, self.maximum = minimum, maximum

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}

    def parse(self, raw: object) -> int:
        """Return the number. Raises BadValue."""
        if isinstance(raw, bool) or not isinstance(raw, int):
            hint = "write it without quotes" if isinstance(raw, str) and raw.strip().isdigit() else None
            raise BadValue(f"expected a whole number, not {describe(raw)}", hint)
        if not self.minimum <= raw <= self.maximum:
            raise BadValue(
                f"{raw} is out of range", f"it is at least {self.minimum} and at most {self.maximum}"
            )
        return raw

    def show(self, value: int) -> str:
        """Return the number."""
        return str(value)


class Processors(ValueType):
    """How many processors' worth of time: 2, 0.5. Typed: an int, in thousandths.

    At least 0.01, below which no kernel's scheduler can divide time, and with at
    most three decimals.
    """

    takes_text = False
    minimum, maximum = 10, 4096 * 1000

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the raw value."""
        return {"type": "number", "minimum": self.minimum / 1000, "maximum": self.maximum // 1000}

    def parse(self, raw: object) -> int:
        """Return the number in thousandths. Raises BadValue."""
        if isinstance(raw, bool) or not isinstance(raw, int | float):
            hint = None
            if isinstance(raw, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", raw.strip()):
                hint = "write it without quotes"
            raise BadValue(f"expected a number, not {describe(raw)}", hint)
        exact = decimal.Decimal(repr(raw)) * 1000
        bounds = "it is at least 0.01 and at most 4096"
        # Not a number compares with nothing.
        if exact.is_nan() or not self.minimum <= exact <= self.maximum:
            raise BadValue(f"{describe(raw)} is out of range", bounds)
        if exact != int(exact):
            raise BadValue(
                f"{raw} has more than three decimals", "write thousandths at the finest, as in 0.125"
            )
        return int(exact)

    def show(self, value: int) -> str:
        """Return the number of processors: 1500 is ``1.5``."""
        whole, rest = divmod(value, 1000)
        return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)
