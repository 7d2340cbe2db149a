"""What whiteouts and opaque directories hide, and what they leave alone."""

from __future__ import annotations

import os
from itertools import permutations

import pytest

from tests.unit.rootfs.archives import Place, archive, directory, file, mode_of, pax

LOWER = archive(
    directory(b"dir", 0o700),
    file(b"dir/lower", b"l"),
    file(b"dir/both", b"l"),
    file(b"dir/sub/lower", b"l"),
    file(b"dir/merged/lower", b"l"),
    file(b"single", b"l"),
    directory(b"empty"),
)


@pytest.mark.parametrize("order", range(24))
def test_an_opaque_directory_hides_lower_layers_only_wherever_it_says_so(place: Place, order: int) -> None:
    """Before, between and after its siblings, which are this layer's and stay."""
    entries = (
        file(b"dir/.wh..wh..opq"),
        file(b"dir/both", b"u"),
        file(b"dir/merged/upper", b"u"),
        directory(b"dir", 0o711),
    )
    place.unpack(LOWER, archive(*list(permutations(entries))[order]))
    assert place.names() == {
        **{"dir": "/", "dir/both": "u", "dir/merged": "/", "dir/merged/upper": "u"},
        **{"single": "l", "empty": "/"},
    }
    assert mode_of(place / "dir") == 0o711


@pytest.mark.parametrize("order", range(24))
def test_a_whiteout_hides_lower_layers_only_wherever_it_stands(place: Place, order: int) -> None:
    """What its own layer puts at the same path stays; a directory is then that of this layer."""
    entries = (file(b".wh.dir"), file(b"dir/both", b"u"), file(b"single", b"u"), file(b".wh.single"))
    place.unpack(LOWER, archive(*list(permutations(entries))[order]))
    assert place.names() == {"dir": "/", "dir/both": "u", "single": "u", "empty": "/"}
    assert mode_of(place / "dir") == 0o755


def test_whiteouts_of_files_directories_and_nothing(place: Place) -> None:
    """One of what is not there is fine, in a missing directory, through a file and in the first layer."""
    place.unpack(
        archive(file(b"kept", b"k"), file(b".wh.kept"), file(b".wh..wh..opq"), file(b"a/b")),
        LOWER,
        archive(
            file(b".wh.dir"),
            file(b".wh.single"),
            file(b".wh.missing"),
            file(b"no/such/.wh.thing"),
            file(b"kept/.wh.thing"),
            file(b"no/dir/.wh..wh..opq"),
        ),
    )
    assert place.names() == {"kept": "k", "a": "/", "a/b": "", "empty": "/"}


def test_an_opaque_root_hides_everything_below(place: Place) -> None:
    """What only the layers below have is gone."""
    place.unpack(LOWER, archive(file(b"new", b"n"), file(b"./.wh..wh..opq"), directory(b"dir")))
    assert place.names() == {"new": "n", "dir": "/"}


def test_what_a_whiteout_hid_can_come_back_in_a_later_layer(place: Place) -> None:
    """Each layer sees the ones below it as they were then."""
    place.unpack(
        LOWER, archive(file(b".wh.dir")), archive(file(b"dir/again", b"a")), archive(file(b".wh.single"))
    )
    assert place.names() == {"dir": "/", "dir/again": "a", "empty": "/"}


def test_what_aufs_kept_for_itself_is_left_out(place: Place) -> None:
    """Old images have it."""
    place.unpack(
        archive(
            file(b".wh..wh.aufs"),
            directory(b".wh..wh.plnk"),
            file(b".wh..wh.plnk/1.2"),
            file(b"d/.wh..wh.orph"),
        )
    )
    assert place.names() == {}


def test_trees_as_deep_as_they_may_be_can_be_hidden(place: Place) -> None:
    """Whole, and around what the layer itself has down there."""
    deep = b"d/" * 254

    def far(name: bytes) -> bytes:
        return pax({b"path": name}) + file(b"short")

    place.unpack(
        archive(far(deep + b"lower"), far(b"e/" + deep[2:] + b"lower")),
        archive(file(b".wh.e"), far(deep + b"upper"), file(b"d/.wh..wh..opq")),
    )
    names = place.names()
    assert len(names) == 255
    assert os.fsdecode(deep + b"upper") in names
