"""Code of modules without what only readers and type checkers need."""

from __future__ import annotations

import marshal
import sys
import traceback
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import coopfile
from coopfile import lean

MODULES = sorted(Path(coopfile.__file__).parent.rglob("*.py"))
TEXT = b'''"""A module."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nowhere import Nothing
else:
    Nothing = "something"

number: int = 3
absent: Nothing


class Holder:
    """A class."""

    first: Nothing
    second: Nothing = 2
    if number:
        third: int = 3

    def method(self, value: Nothing, *more: Nothing, named: Nothing = None) -> Nothing:
        """Do it."""
        self.kept: Nothing = value
        try:
            own: int = value / 0
        except ZeroDivisionError:
            """nothing but words"""
        match value:
            case 1:
                "words"
            case _:
                raise (
                    ValueError(value)
                )
        return own


async def later(value: Nothing) -> Nothing:
    """Wait."""
'''


def executed(source: str = "/somewhere/module.py") -> dict[str, Any]:
    """Execute that module, lean."""
    names: dict[str, Any] = {"__name__": "module"}
    exec(lean.compiled(TEXT, source), names)
    return names


def within(code: CodeType) -> list[CodeType]:
    """Return code and all code in it, in order."""
    inner = [found for item in code.co_consts if isinstance(item, CodeType) for found in within(item)]
    return [code, *inner]


def test_what_goes() -> None:
    """Docstrings and annotations go, but for those of classes, and what is imported for type checkers."""
    names = executed()
    holder = names["Holder"]
    assert names["Nothing"] == "something" and names["number"] == 3
    assert not {"__doc__", "__annotations__", "annotations", "absent"} & set(names)
    assert holder.__doc__ is holder.method.__doc__ is names["later"].__doc__ is None
    assert holder.method.__annotations__ == names["later"].__annotations__ == {}
    assert holder.__annotations__ == {"first": "Nothing", "second": "Nothing", "third": "int"}
    assert (holder.second, holder.third) == (2, 3)


def test_what_stays() -> None:
    """The code does what it did, and its tracebacks name the lines."""
    method = executed()["Holder"]().method
    with pytest.raises(UnboundLocalError):
        method(1)
    with pytest.raises(ValueError, match=r"^2$") as caught:
        method(2)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == 34


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_lines(module: Path) -> None:
    """Every instruction of every module is known to be on a line where the source has something."""
    text = module.read_bytes()
    written = {number for number, line in enumerate(text.splitlines(), 1) if line.strip()} | {None, 0}
    for code in within(lean.compiled(text, str(module))):
        assert {line for _, _, line in code.co_lines()} <= written
        if sys.version_info >= (3, 11):
            assert {position[2:] for position in code.co_positions()} <= {(None, None)}


def test_far_lines() -> None:
    """Lines far from each other, forth and back, are told as they are."""
    text = b"(" + b"\n" * 5000 + b"f(\n" + b"\n" * 70 + b"1)\n" + b"\n" * 70_000 + b"+ 2)\n"
    wanted = [line for _, _, line in compile(text, "far", "exec").co_lines()]
    assert len(set(wanted)) > 2
    assert set(wanted) == {line for _, _, line in lean.compiled(text, "far").co_lines()}


def test_size() -> None:
    """A quarter of the bytes and more goes."""
    bodies = [path.read_bytes() for path in MODULES]
    before = sum(len(marshal.dumps(compile(text, "x", "exec", dont_inherit=True))) for text in bodies)
    after = sum(len(marshal.dumps(lean.compiled(text, "x"))) for text in bodies)
    assert after < before * (0.75 if sys.version_info >= (3, 11) else 0.9)
