"""Tar archives written by hand, byte by byte, and places to unpack them with something outside to hurt."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import os
import stat
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coopfile.errors import CoopError
from coopfile.native import syscalls
from coopfile.rootfs.layers import Layer, Limits
from coopfile.rootfs.owners import SINGLE, Owners
from coopfile.rootfs.tree import fingerprint
from coopfile.rootfs.unpack import Unpacked, unpack

POSIX, GNU, V7 = b"ustar\x0000", b"ustar  \0", bytes(8)
FILE, HARD, LINK, CHARACTER, BLOCK, DIRECTORY, FIFO = b"0", b"1", b"2", b"3", b"4", b"5", b"6"


def header(
    name: bytes,
    kind: bytes = FILE,
    *,
    mode: int = 0o644,
    uid: int | bytes = 0,
    gid: int | bytes = 0,
    size: int | bytes = 0,
    mtime: int | bytes = 0,
    link: bytes = b"",
    magic: bytes = POSIX,
    prefix: bytes = b"",
) -> bytes:
    """Return one block; numbers may be given as the bytes of their field."""

    def number(value: int | bytes, width: int) -> bytes:
        return value if isinstance(value, bytes) else b"%0*o\0" % (width - 1, value)

    block = bytearray(512)
    fields = (
        (0, name, 100),
        (100, number(mode, 8), 8),
        (108, number(uid, 8), 8),
        (116, number(gid, 8), 8),
        (124, number(size, 12), 12),
        (136, number(mtime, 12), 12),
        (156, kind, 1),
        (157, link, 100),
        (257, magic, 8),
        (345, prefix, 155),
    )
    for at, value, width in fields:
        assert len(value) <= width, (value, width)
        block[at : at + len(value)] = value
    return summed(block)


def summed(block: bytes | bytearray) -> bytes:
    """Return a block with the right checksum."""
    changed = bytearray(block)
    changed[148:156] = b" " * 8
    changed[148:156] = b"%06o\0 " % sum(changed)
    return bytes(changed)


def padded(data: bytes) -> bytes:
    """Return data up to a whole number of blocks."""
    return data + bytes(-len(data) % 512)


def file(name: bytes, data: bytes = b"", **fields: Any) -> bytes:
    """Return a file's entry."""
    return header(name, size=len(data), **fields) + padded(data)


def directory(name: bytes, mode: int = 0o755, **fields: Any) -> bytes:
    """Return a directory's entry."""
    return header(name, DIRECTORY, mode=mode, **fields)


def link(name: bytes, target: bytes, **fields: Any) -> bytes:
    """Return a symbolic link's entry."""
    return header(name, LINK, link=target, mode=0o777, **fields)


def hard(name: bytes, target: bytes, **fields: Any) -> bytes:
    """Return a hard link's entry."""
    return header(name, HARD, link=target, **fields)


def pax(records: Mapping[bytes, bytes] | Sequence[tuple[bytes, bytes]], kind: bytes = b"x") -> bytes:
    """Return a PAX header for the entry that follows it."""
    pairs = records.items() if isinstance(records, Mapping) else records
    body = b""
    for key, value in pairs:
        rest = b" " + key + b"=" + value + b"\n"
        length = len(rest) + 1
        while len(str(length)) + len(rest) != length:
            length += 1
        body += str(length).encode() + rest
    return header(b"PaxHeaders/x", kind, size=len(body)) + padded(body)


def long(text: bytes, kind: bytes = b"L") -> bytes:
    """Return a GNU header with a long name (L) or target (K) for the entry that follows it."""
    return header(b"././@LongLink", kind, size=len(text) + 1, magic=GNU) + padded(text + b"\0")


def archive(*entries: bytes) -> bytes:
    """Return a whole archive."""
    return b"".join(entries) + bytes(1024)


def digest(data: bytes) -> str:
    """Return the diff_id of an archive."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Place:
    """A root to unpack into, at a path whose neighbours must never change."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.outside = base / "outside"
        self.root = base / "store" / "root"
        self.root.parent.mkdir()
        (self.outside / "etc").mkdir(parents=True)
        (self.outside / "etc/passwd").write_text("canary")
        (self.root.parent / "canary").write_text("canary")
        self._layers = 0

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def layer(self, content: bytes, compress: Callable[[bytes], bytes] = lambda data: data) -> Layer:
        """Write a blob; return it as a layer with the right digest."""
        self._layers += 1
        path = self.base / f"blob{self._layers}"
        path.write_bytes(compress(content))
        return Layer(str(path), digest(content))

    def unpack(
        self,
        *layers: bytes | Layer,
        owners: Owners = SINGLE,
        limits: Limits | None = None,
        root: Path | None = None,
    ) -> Unpacked:
        """Unpack archives; whatever happens, nothing outside of the root may have changed."""
        given = [one if isinstance(one, Layer) else self.layer(one) for one in layers]
        before = self._canaries()
        try:
            return unpack(given, str(root or self.root), owners, limits)
        finally:
            assert self._canaries() == before, "something outside of the root has changed"

    def refuse(self, *layers: bytes | Layer, **how: Any) -> str:
        """Unpack archives that have to be refused; return the message."""
        try:
            self.unpack(*layers, **how)
        except CoopError as error:
            return error.message
        raise AssertionError("it was not refused")

    def _canaries(self) -> tuple[Any, ...]:
        store = sorted(name for name in os.listdir(self.root.parent) if not name.startswith("root"))
        return (
            fingerprint(str(self.outside)),
            store,
            (self.root.parent / "canary").read_text(),
            sorted(name for name in os.listdir(self.base) if not name.startswith("blob")),
        )

    def names(self, root: Path | None = None) -> dict[str, str]:
        """Return what is in the root: contents of files, "-> target", "/" and so on, by path."""
        found = {}
        top = root or self.root
        for directory, names, files in os.walk(top):
            for name in (*names, *files):
                path = Path(directory, name)
                mode = path.lstat().st_mode
                if stat.S_ISLNK(mode):
                    content = "-> " + os.readlink(path)
                elif stat.S_ISREG(mode):
                    content = path.read_text(errors="surrogateescape")
                else:
                    content = "/" if stat.S_ISDIR(mode) else "?"
                found[str(path.relative_to(top))] = content
        return found


def gz(data: bytes) -> bytes:
    """Return data as gzip."""
    return gzip.compress(data, 1, mtime=0)


def mode_of(path: Path) -> int:
    """Return the permissions of a path."""
    return stat.S_IMODE(path.lstat().st_mode)


def in_child(function: Callable[[], None], ids: tuple[int, int] | None = None) -> None:
    """Call a function in a child process, which may give up rights, and fail if it raises.

    ``ids`` is a range of the host's (first, count) that the child gets in a user
    namespace of its own, from 0; that takes root.
    """
    report, ready, go = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            if ids is not None:
                syscalls.unshare(syscalls.CLONE_NEWUSER)
                os.write(ready[1], b"x")
                os.read(go[0], 1)
            function()
            status = 0
        except BaseException:
            os.write(report[1], traceback.format_exc().encode()[-8000:])
        finally:
            os._exit(status)
    if ids is not None:
        os.read(ready[0], 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text(f"0 {ids[0]} {ids[1]}\n")
        os.write(go[1], b"x")
    _, status = os.waitpid(child, 0)
    os.close(report[1])
    text = os.read(report[0], 1 << 16).decode()
    for descriptor in (report[0], *ready, *go):
        os.close(descriptor)
    assert status == 0, text


def become_nobody() -> None:
    """Give up being root for good; nothing to do for others."""
    codecs.lookup("ascii")  # from a library that may be in root's home
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
