"""Reading files of one's own whatever their modes are, as root would, without being root.

A sandbox is root of a user namespace and may write files that their owner cannot read without changing
their mode. So what looks at them is a child in a user namespace of its own, with the one capability
that this takes. It has no more rights to anything that is not the caller's.
"""

from __future__ import annotations

import marshal
import os

from coopfile.errors import CoopError
from coopfile.native import namespaces, syscalls
from coopfile.native.signals import SIGKILL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, NoReturn

_DAC_OVERRIDE = 1 << 1  # CAP_DAC_OVERRIDE: capabilities(7)
_SIZE = 4  # bytes in front of an item
_ENOUGH = 1 << 16  # bytes that are written at once
_VALUE, _REFUSED, _FAILED, _BROKEN = range(4)


def as_owner(produce: Callable[[], Iterable[tuple[Any, ...]]]) -> Iterator[tuple[Any, ...]]:
    """Yield what a child yields that may read and write all that is the caller's own.

    Items are plain values, as ``marshal`` takes them. Raises what the child raises, if that is a CoopError
    or an OSError, and NamespaceError. A generator that is closed early ends the child.
    """
    receive, send = os.pipe()
    caller = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(receive)
        _produce(produce, send, caller)
    os.close(send)
    ended = False
    try:
        with open(receive, "rb", buffering=_ENOUGH) as stream:
            while header := stream.read(_SIZE):
                data = stream.read(int.from_bytes(header, "little"))
                if len(data) < int.from_bytes(header, "little"):
                    break
                kind, value = marshal.loads(data)
                if kind == _VALUE:
                    yield value
                elif kind == _REFUSED:
                    raise CoopError(*value)
                elif kind == _FAILED:
                    raise OSError(*value)
                else:
                    ended = value is None
                    if value is not None:
                        raise RuntimeError(f"in a child: {value}")
        if not ended:
            raise CoopError("the process that reads the session's files was killed", "try again")
    finally:
        if not ended:
            _kill(pid)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass  # a program that waits for every child of its own


def _kill(pid: int) -> None:
    try:
        os.kill(pid, SIGKILL)
    except ProcessLookupError:
        pass


def _produce(produce: Callable[[], Iterable[tuple[Any, ...]]], send: int, caller: int) -> NoReturn:
    """Be the child: write every item, and then how it ended; never returns."""
    try:
        with open(send, "wb", buffering=_ENOUGH, closefd=False) as stream:
            try:
                namespaces.enter_user_namespace(0, 0)
                syscalls.drop_capabilities(_DAC_OVERRIDE)
                syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
                # After the change of credentials, which clears it: prctl(2).
                syscalls.prctl(syscalls.PR_SET_PDEATHSIG, SIGKILL)
                if os.getppid() != caller:
                    os._exit(0)
                for value in produce():
                    _write(stream, _VALUE, value)
                _write(stream, _BROKEN, None)
            except CoopError as error:
                _write(stream, _REFUSED, (error.message, error.remedy))
            except OSError as error:
                named = isinstance(error.filename, str | bytes)
                where = os.fsdecode(error.filename) if named else None
                _write(stream, _FAILED, (error.errno, error.strerror, where))
            except Exception as error:
                _write(stream, _BROKEN, f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _write(stream: Any, kind: int, value: Any) -> None:
    data = marshal.dumps((kind, value))
    stream.write(len(data).to_bytes(_SIZE, "little") + data)
