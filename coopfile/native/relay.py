"""The caller's side of a terminal inside: what is typed goes in, what is drawn comes out.

Keys are bytes for the terminal inside, which makes the signals of Ctrl-C, Ctrl-\\ and Ctrl-Z of
them; signals that reach this process are for its caller to pass on. Nothing blocks: buffers are
bounded, and whoever does not read is waited for, as by a terminal. As a job in the background it
shows what is drawn and leaves what is typed, and the terminal's settings, to the shell.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]
import _socket
import fcntl
import os
import select
import time

from coopfile.native import signals, syscalls, wire
from coopfile.native.modes import Modes
from coopfile.native.pty import SETTINGS, TCGETS, TIOCGWINSZ, TIOCSWINSZ, Wanted
from coopfile.native.terminal import Saved, Watch, is_foreground

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ENDED = 0  # no signal has this number
_MOST = 16384  # bytes under way in each direction: what Ctrl-C cannot take back any more
# Bytes to take after the command's end from what else still draws. The kernel holds back less: two
# buffers of 8 KiB and one of 4 (pty_common_install, n_tty).
_LAST = 65536
_PAUSE = 0.1  # seconds between two looks at what the kernel does not tell
_PATIENCE = 1.0  # seconds for which a terminal may show nothing at the end of what was asked to end
_SIGINFO = 128  # bytes of struct signalfd_siginfo, whose first four are the number


def size() -> tuple[int, int]:
    """Return rows and columns of the caller's terminal; 0 where it does not tell."""
    try:
        words = fcntl.ioctl(1, TIOCGWINSZ, bytes(8))
    except OSError:
        return 0, 0
    return int.from_bytes(words[:2], "little"), int.from_bytes(words[2:4], "little")


def settings() -> bytes:
    """Return the settings of the caller's terminal as ``pty.open_pair`` takes them."""
    try:
        return fcntl.ioctl(0, TCGETS, bytes(SETTINGS))
    except OSError:
        return b""


def attend(master: int, ended: int, forward: Callable[[int], None]) -> None:
    """Relay between the caller's terminal (0 and 1) and ``master`` until ``ended`` can be read.

    ``forward`` gets the numbers of signals to this process. ``master`` stays the caller's to close.
    """
    # What the caller ignores, as nohup(1) arranges, is not for the command either.
    passed = {number for number in signals.FORWARDED if _signal.getsignal(number) != _signal.SIG_IGN}
    relay = Relay(ended=ended)
    try:
        relay.be_watched()
        relay.connect(master)
        while (number := relay.wait()) != ENDED:
            if number in passed and number is not None:
                forward(number)
        relay.finish()
    finally:
        relay.close()


def offer() -> tuple[_socket.socket, Wanted]:
    """Return what our end of a terminal will come by, and what to ask of who makes it: one like the caller's.

    Of ``Wanted`` the caller closes the channel.
    """
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    streams = tuple(stream for stream in (0, 1, 2) if os.isatty(stream))
    return ours, Wanted(theirs.detach(), streams, *size(), settings(), Saved())


class Relay:
    """Relays whenever it is waited for; ``close`` gives the terminal back.

    ``ended``, if any, can be read when the command has ended. ``channel``, if any, is what our end of
    the terminal inside comes by; it is closed here.
    """

    def __init__(self, *, ended: int | None = None, channel: _socket.socket | None = None) -> None:
        self._ended = ended
        self._channel = channel
        self._master: int | None = None
        self._saved = Saved()
        self._watch: Watch | None = None
        self._modes = Modes()
        self._input = self._output = b""
        self._foreground = self._vacant = self._is_to_end = False
        self._blocking: list[int] = []
        self._opened: list[int] = []
        self._taken: list[int] = []
        handled = signals.HANDLED | {_signal.SIGTSTP}
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, handled)
        try:
            self._signals = self._keep(syscalls.signal_descriptor(handled))
            self._in = self._open(0, os.O_RDONLY)
            self._out = self._open(1, os.O_WRONLY)
        except BaseException:
            self.close()
            raise

    def be_watched(self) -> None:
        """Have another process give the terminal back if this one is killed, where no monitor does."""
        try:
            self._watch = Watch(self._saved)
        except OSError:
            pass  # no room for a process: the command counts

    def connect(self, master: int) -> None:
        """Begin to relay. ``master`` is our end of the terminal inside, which is not closed here.

        When the caller's terminal hangs up, it leads nowhere from then on, so that the one inside
        hangs up, too.
        """
        os.set_blocking(master, False)
        self._master = master
        self._take_terminal()

    def wait(self, timeout: float | None = None) -> int | None:
        """Relay until there is a signal that is not about the terminal; return its number.

        ``ENDED`` when the command has, None when the time (in seconds) is over.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            while self._taken:
                number = self._taken.pop(0)
                if not self._is_ours(number):
                    self._is_to_end |= number in signals.ENDING
                    return number
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if self._turn(left):
                return ENDED
            if left == 0 and not self._taken:
                self._is_to_end = True
                return None

    def finish(self) -> None:
        """Show what the command has drawn last, and end what it has left switched on.

        The caller's terminal may be stopped, and is waited for, but not after a signal that asks to end,
        or when time was over.
        """
        left = _LAST
        self._accept()
        # With all writers' data there, and not before, there is nothing to read: n_tty_read.
        while (shown := self._flush()) and left > 0 and (got := self._read_master()):
            left -= got
        if shown:
            self._output = self._modes.undo()
            self._flush()

    def close(self) -> None:
        """Give the terminal back as it was, and let signals through."""
        if self._foreground:
            # Terminals answer questions that are drawn on them, as if it was typed. What asked is
            # gone, and whoever reads next must not take it for the caller's.
            self._saved.restore(discard=True)
        if self._watch is not None:
            self._watch.dismiss()
            self._watch = None
        for stream in self._blocking:
            os.set_blocking(stream, True)
        for descriptor in self._opened:
            os.close(descriptor)
        if self._channel is not None:
            self._channel.close()
        self._opened, self._blocking, self._channel = [], [], None
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)

    def _keep(self, descriptor: int) -> int:
        self._opened.append(descriptor)
        return descriptor

    def _open(self, stream: int, flags: int) -> int:
        """Return a descriptor of a stream that does not block.

        The stream's own would make the shell's, and everybody else's, not block either.
        """
        flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            return self._keep(os.open(f"/proc/self/fd/{stream}", flags))
        except OSError:  # another user's terminal, after su: there is no other way
            if os.get_blocking(stream):
                os.set_blocking(stream, False)
                self._blocking.append(stream)
            return stream

    def _accept(self) -> None:
        """Take our end of the terminal inside if it has come."""
        if self._channel is None or wire.is_waiting(self._channel) is False:
            return
        try:
            _, (master,) = wire.receive(self._channel, 1)
        except wire.Broken:
            pass  # there is none, and its maker tells why
        else:
            self.connect(self._keep(master))
        self._channel.close()
        self._channel = None

    def _take_terminal(self) -> None:
        """Make it ours if this is the job in the foreground."""
        try:
            self._foreground = is_foreground(0)
            if self._foreground and self._master is not None:
                self._saved.make_raw()
                self._follow_size()
        except OSError:
            self._hang_up()

    def _follow_size(self) -> None:
        if self._master is not None:
            try:
                fcntl.ioctl(self._master, TIOCSWINSZ, fcntl.ioctl(1, TIOCGWINSZ, bytes(8)))
            except OSError:
                pass  # what has no size does not matter, and who hung up is told elsewhere

    def _is_ours(self, number: int) -> bool:
        """Do what a signal says of the terminal; tell whether it is done with that."""
        if number == _signal.SIGWINCH:
            self._follow_size()
        elif number == _signal.SIGTSTP:
            self._stop()
        elif number == _signal.SIGCONT:
            self._take_terminal()
            return False
        else:
            return False
        return True

    def _stop(self) -> None:
        """Be stopped as a job is, with the terminal as the shell expects it."""
        if self._foreground:
            self._saved.restore()
        for stream in self._blocking:
            os.set_blocking(stream, True)
        os.kill(os.getpid(), _signal.SIGTSTP)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {_signal.SIGTSTP})
        # Here it is stopped, unless nobody could continue it: then the kernel drops the signal.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGTSTP})
        for stream in self._blocking:
            os.set_blocking(stream, False)
        self._take_terminal()

    def _hang_up(self) -> None:
        """Hang up inside, as the caller's terminal has; what is under way is lost, as on that."""
        self._input = self._output = b""
        if self._master is not None:
            null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
            os.dup2(null, self._master, inheritable=False)
            os.close(null)
            self._master = None

    def _turn(self, left: float | None) -> bool:
        """Wait for anything to do, and do it; tell whether the command has ended."""
        if not self._foreground and self._master is not None:
            self._take_terminal()  # the shell says nothing to a job that it takes to the foreground
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        if self._ended is not None:
            poll.register(self._ended, select.POLLIN)
        if self._channel is not None:
            poll.register(self._channel, select.POLLIN)
        if self._master is not None:
            has_room = len(self._input) < _MOST
            poll.register(self._in, select.POLLIN if has_room and self._foreground else 0)
            if self._output:
                poll.register(self._out, select.POLLOUT)
            wanted = select.POLLIN if len(self._output) < _MOST else 0
            wanted |= select.POLLOUT if self._input else 0
            if wanted and not self._vacant:
                poll.register(self._master, wanted)
            if self._vacant or not self._foreground:
                left = _PAUSE if left is None else min(left, _PAUSE)
        self._vacant = False
        ready = dict(poll.poll(None if left is None else left * 1000))
        if self._signals in ready:
            self._take_signals()
            return False  # one may say that the terminal is not ours to read any more
        if self._channel is not None and self._channel.fileno() in ready:
            self._accept()
        if self._in in ready:
            self._read_input()
        if self._master in ready:
            self._vacant = ready[self._master] == select.POLLHUP
            self._write_master()
            self._read_master()
        if self._output:
            self._write_output()
        return self._ended in ready

    def _take_signals(self) -> None:
        try:
            taken = os.read(self._signals, 16 * _SIGINFO)
        except BlockingIOError:
            return
        self._taken += [int.from_bytes(taken[at : at + 4], "little") for at in range(0, len(taken), _SIGINFO)]

    def _read_input(self) -> None:
        try:
            got = os.read(self._in, _MOST - len(self._input))
        except BlockingIOError:
            return
        except OSError:
            got = b""
        if got:
            self._input += got
            self._write_master()
        else:
            self._hang_up()

    def _write_master(self) -> None:
        if self._master is None or not self._input:
            return
        try:
            self._input = self._input[os.write(self._master, self._input) :]
        except BlockingIOError:
            pass
        except OSError:
            self._input = b""  # nobody is there to read it

    def _read_master(self) -> int:
        """Take what has been drawn, as far as there is room; return how many bytes it was."""
        if self._master is None or len(self._output) >= _MOST:
            return 0
        try:
            got = os.read(self._master, _MOST - len(self._output))
        except BlockingIOError:
            return 0
        except OSError:
            got = b""
        if not got:
            # Nobody has it open. That may be so for a while only, which poll cannot wait for.
            self._vacant = True
            return 0
        self._modes.follow(got)
        self._output += got
        return len(got)

    def _write_output(self) -> None:
        try:
            self._output = self._output[os.write(self._out, self._output) :]
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up()

    def _flush(self) -> bool:
        """Write all that there is to show; tell whether that was possible."""
        while self._output:
            self._write_output()
            if not self._output:
                break
            poll = select.poll()
            poll.register(self._signals, select.POLLIN)
            poll.register(self._out, select.POLLOUT)
            ready = poll.poll(_PATIENCE * 1000 if self._is_to_end else None)
            self._take_signals()
            while self._taken:
                number = self._taken.pop(0)
                self._is_to_end |= not self._is_ours(number) and number in signals.ENDING
            if not ready:
                self._output = b""
                return False
        return self._master is not None
