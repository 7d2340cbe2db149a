"""Sizes, durations, counts and processors: what they accept, mean and say."""

from __future__ import annotations

import math

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from coopfile.language.values import BadValue, Count, Duration, Processors, Size

SIZES = {
    "2g": 2 << 30,
    "2G": 2 << 30,
    "512m": 512 << 20,
    "100k": 100 << 10,
    "1.5g": 3 << 29,
    "0.5k": 512,
    "1t": 1 << 40,
    "4096b": 4096,
    "1.3k": 1331,
    "007k": 7 << 10,
}


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_a_size_is_a_number_with_a_binary_unit(text: str, size: int) -> None:
    """Units are powers of 1024 in either case; fractions of a byte are rounded down."""
    assert Size().parse(text) == size


@pytest.mark.parametrize(
    ("text", "meant"),
    [("2 gb", "2g"), ("2GB", "2g"), ("2GiB", "2g"), ("2 g", "2g"), ("512 MB", "512m"), ("1.5 gib", "1.5g")],
)
def test_other_spellings_of_a_size_are_answered_with_the_right_one(text: str, meant: str) -> None:
    """A size that another program would take is refused, and the help says how it is written here."""
    with pytest.raises(BadValue) as error:
        Size().parse(text)
    assert f'write "{meant}"' in str(error.value.help)


@pytest.mark.parametrize(
    "text",
    ["", " ", "g", "2", "2x", "two g", "2gg", "0x2g", "1e3m", "2,5g", "٢g", "1.g", ".5g", "-1m"],
)
def test_what_is_no_size_is_refused_with_the_rule(text: str) -> None:
    """Text without a number and a unit is never guessed at."""
    with pytest.raises(BadValue) as error:
        Size().parse(text)
    assert error.value.help


@pytest.mark.parametrize("raw", [2, 2147483648, 0, -5, 2.5, True, None, [], {}, math.nan, 2**200])
def test_a_size_without_a_unit_is_refused(raw: object) -> None:
    """A bare number is not taken for bytes, nor for anything else."""
    with pytest.raises(BadValue):
        Size().parse(raw)


def test_the_bounds_of_a_size_are_allowed_and_named() -> None:
    """The least and the most are themselves right, and the error names them."""
    size = Size(minimum="16m", maximum="1g")
    assert (size.parse("16m"), size.parse("1g")) == (16 << 20, 1 << 30)
    for text, bound in (
        ("16383k", '"16m"'),
        ("0m", '"16m"'),
        ("1.1g", '"1g"'),
        ("999999999999999999t", '"1g"'),
    ):
        with pytest.raises(BadValue) as error:
            size.parse(text)
        assert bound in str(error.value.help)


@given(st.integers(1, Size().maximum))
def test_every_size_is_shown_so_that_it_reads_back(size: int) -> None:
    """Showing a size and parsing what was shown is the identity."""
    assert Size().parse(tomli.loads(f"v = {Size().show(size)}")["v"]) == size


DURATIONS = {
    "120s": 120_000,
    "2m": 120_000,
    "1h30m": 5_400_000,
    "500ms": 500,
    "1.5s": 1500,
    "1h2m3s4ms": 3_723_004,
    "1m500ms": 60_500,
    "168h": 604_800_000,
}


@pytest.mark.parametrize(("text", "time"), DURATIONS.items())
def test_a_duration_is_numbers_with_units(text: str, time: int) -> None:
    """Units go from the largest to the smallest."""
    assert Duration().parse(text) == time


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "120",
        "30m1h",
        "1h1h",
        "0s",
        "0.1ms",
        "-1s",
        "169h",
        "1d",
        "s",
        "1 h",
        "1e3s",
        120,
        0,
        -1,
        True,
        1.5,
    ],
)
def test_what_is_no_duration_is_refused(raw: object) -> None:
    """No unit, no order, no time, or too much of it."""
    with pytest.raises(BadValue):
        Duration().parse(raw)


@pytest.mark.parametrize(
    ("raw", "meant"), [(120, '"120s"'), ("2 minutes", '"2m"'), ("10 sec", '"10s"'), ("1hour", '"1h"')]
)
def test_other_spellings_of_a_duration_are_answered_with_the_right_one(raw: object, meant: str) -> None:
    """The help of a refused duration says how it is written here."""
    with pytest.raises(BadValue) as error:
        Duration().parse(raw)
    assert meant in str(error.value.help)


@given(st.integers(1, Duration().maximum))
def test_every_duration_is_shown_so_that_it_reads_back(time: int) -> None:
    """Showing a duration and parsing what was shown is the identity."""
    assert Duration().parse(tomli.loads(f"v = {Duration().show(time)}")["v"]) == time


@pytest.mark.parametrize("raw", [True, False, 3, 101, 4.0, "4", None, [], 2**70, -(2**70)])
def test_a_count_is_an_integer_within_bounds(raw: object) -> None:
    """Booleans, strings and numbers with a point are not counts."""
    with pytest.raises(BadValue):
        Count(minimum=4, maximum=100).parse(raw)


def test_the_bounds_of_a_count_are_allowed() -> None:
    """The least and the most are themselves right."""
    count = Count(minimum=4, maximum=100)
    assert (count.parse(4), count.parse(100), count.show(100)) == (4, 100, "100")


@pytest.mark.parametrize(
    ("raw", "thousandths"), [(2, 2000), (1.5, 1500), (0.01, 10), (4096, 4_096_000), (0.1, 100)]
)
def test_processors_are_counted_in_thousandths(raw: float, thousandths: int) -> None:
    """A fraction comes out exactly, however binary floating point would have it."""
    assert Processors().parse(raw) == thousandths


@pytest.mark.parametrize(
    "raw",
    [0, -1, 0.0, -0.5, 0.001, 4096.5, 1.0005, math.nan, math.inf, -math.inf, True, "2", None, 2**80, 1e300],
)
def test_processors_out_of_range_or_too_fine_are_refused(raw: object) -> None:
    """Nothing that the kernel could not enforce gets through."""
    with pytest.raises(BadValue):
        Processors().parse(raw)


@given(st.integers(10, 4_096_000))
def test_processors_are_shown_so_that_they_read_back(thousandths: int) -> None:
    """Showing processors and parsing what was shown is the identity."""
    assert Processors().parse(tomli.loads(f"v = {Processors().show(thousandths)}")["v"]) == thousandths
