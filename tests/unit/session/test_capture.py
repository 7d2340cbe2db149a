"""The streams of a command: real processes on real pipes."""

from __future__ import annotations

import io
import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coopfile
from coopfile.errors import CoopError
from coopfile.session.capture import Output
from tests.unit.session.host import HostBackend

PATIENT = 60.0  # seconds that nothing here comes near to


@pytest.fixture
def session(plan: coopfile.Plan, host: HostBackend) -> Iterator[coopfile.Session]:
    """Yield a session of the host's processes."""
    with coopfile.Session(plan, backend=host) as made:
        yield made


@given(
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=30)), max_size=20),
)
def test_the_ends_are_kept(most: int, pieces: list[tuple[int, bytes]]) -> None:
    """Of each stream the last bytes, half of the room at least if there are as many; all else is counted."""
    output = Output(most)
    whole = [b"", b""]
    for which, data in pieces:
        output.add(which, data)
        whole[which] += data
    kept, cut = output.taken()
    assert sum(map(len, kept)) == min(most, sum(map(len, whole)))
    for end, all_of_it, missing in zip(kept, whole, cut, strict=True):
        assert all_of_it.endswith(end)
        assert len(end) + missing == len(all_of_it)
        assert len(end) >= min(len(all_of_it), most // 2)


def test_output_is_captured(session: coopfile.Session) -> None:
    """Each stream for itself, whatever bytes they have."""
    result = session.exec(["printf", "a\\377b"])
    assert (result.stdout, result.text, result.ok) == (b"a\xffb", "a\ufffdb", True)
    result = session.shell("echo out; echo err >&2; exit 3")
    assert (result.status, result.text, result.error_text) == (3, "out\n", "err\n")
    assert (result.cut_stdout, result.cut_stderr) == (0, 0)


def test_the_cap(session: coopfile.Session) -> None:
    """The end of what is printed is kept, and the rest is counted; by default the plan says how much."""
    result = session.shell("seq 100000", output=20)
    assert result.text == "9\n99998\n99999\n100000\n"[-20:]
    assert result.cut_stdout + len(result.stdout) == 588895
    assert len(session.shell("seq 100000").stdout) == session.plan.limits.output
    assert session.shell("echo gone", output=0).cut_stdout == 5


def test_a_flood_ends_in_time(session: coopfile.Session) -> None:
    """A command that prints without end is ended, and its last words are kept."""
    result = session.exec(["yes"], timeout=0.5, output=1000)
    assert (result.status, result.timed_out) == (124, True)
    assert len(result.stdout) == 1000
    assert result.cut_stdout > 0


def test_input_is_given(session: coopfile.Session) -> None:
    """More than a pipe holds, while output comes back; without any there is an empty one."""
    data = os.urandom(3 << 20)
    result = session.exec(["cat"], stdin=data, output=len(data))
    assert result.stdout == data
    assert session.exec(["cat"], stdin=bytearray(b"abc")).stdout == b"abc"
    assert session.exec(["cat"], stdin=b"").stdout == b""
    assert session.exec(["cat"]).stdout == b""


@pytest.mark.parametrize(
    "script", ["exit 4", "exec <&-; sleep 0.05; exit 4", "head -c 10 >/dev/null; exit 4"]
)
def test_input_that_nobody_reads(session: coopfile.Session, script: str) -> None:
    """It is given up when the command has ended, or has closed its end."""
    assert session.shell(script, stdin=bytes(1 << 20)).status == 4


def test_closed_streams(session: coopfile.Session) -> None:
    """A command that closes its streams is waited for all the same."""
    result = session.shell("echo a; exec >&- 2>&- <&-; sleep 0.05; exit 5", stdin=bytes(1 << 20))
    assert (result.status, result.stdout) == (5, b"a\n")


def test_what_is_left_in_the_background(session: coopfile.Session) -> None:
    """It does not keep the result from being returned, nor does it if it never stops printing."""
    result = session.shell("sleep 60 & echo done", timeout=PATIENT)
    assert (result.status, result.text) == (0, "done\n")
    result = session.shell("yes & sleep 0.05; exit 6", timeout=PATIENT)
    assert result.status == 6


def test_streams_of_the_caller(session: coopfile.Session, tmp_path: Path) -> None:
    """Descriptors and open files are the command's own streams, and stay open."""
    with (tmp_path / "file").open("w+b") as file:
        file.write(b"one\n")
        file.seek(0)
        result = session.shell("read line; echo $line; echo two", stdin=file.fileno(), stdout=file)
        assert result.stdout == b""
        file.seek(0)
        assert file.read() == b"one\none\ntwo\n"


def test_streams_as_subprocess_has_them(session: coopfile.Session) -> None:
    """Its constants mean what they mean there."""
    script = "echo out; echo err >&2"
    both = session.shell(script, stderr=subprocess.STDOUT)
    assert (both.stdout, both.stderr) == (b"out\nerr\n", b"")
    only = session.shell(script, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert (only.stdout, only.stderr) == (b"", b"err\n")
    assert session.exec(["cat"], stdin=subprocess.DEVNULL).stdout == b""


@pytest.mark.parametrize(
    ("streams", "said"),
    [
        ({"stdin": "text"}, "stdin is a str"),
        ({"stdin": -1}, "stdin is an int"),
        ({"stdin": True}, "stdin is a bool"),
        ({"stdout": io.BytesIO()}, "stdout is a BytesIO"),
        ({"stderr": b"x"}, "stderr is a bytes"),
        ({"stdout": subprocess.STDOUT}, "stdout is an int"),
        ({"stdin": 999999}, "stdin is the descriptor 999999, which is not open"),
        ({"stderr": 10**20}, "which is not open"),
    ],
)
def test_streams_that_are_none(session: coopfile.Session, streams: dict[str, Any], said: str) -> None:
    """A CoopError says which, and what it may be."""
    with pytest.raises(CoopError, match=said) as caught:
        session.exec(["true"], **streams)
    assert caught.value.remedy


def open_descriptors() -> set[str]:
    """Return the descriptors of this process."""
    return set(os.listdir("/proc/self/fd"))


def test_nothing_is_left_open(session: coopfile.Session) -> None:
    """Whether a command ends well, in time, or cannot be started."""
    session.exec(["true"])
    before = open_descriptors()
    for _ in range(20):
        session.shell("cat; exit 1", stdin=b"x" * 100)
        with pytest.raises(CoopError):
            session.exec(["true"], stderr=io.StringIO())
        with pytest.raises(FileNotFoundError):
            session.exec(["/no/such/program"], stdin=b"x")
    session.exec(["sleep", "60"], timeout=0.01, stdin=b"x" * 100)
    assert open_descriptors() == before


def test_no_descriptors_left(session: coopfile.Session) -> None:
    """The caller is told which limit it is, and the session goes on."""
    session.exec(["true"])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, open_descriptors()))
    spare = [os.dup(0) for _ in range(highest)]  # no gaps below the highest
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 2, hard))
        with pytest.raises(coopfile.SessionError, match="no streams can be made"):
            session.exec(["true"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in spare:
            os.close(descriptor)
    assert session.exec(["true"]).ok


def test_an_interrupt_kills_the_command(session: coopfile.Session, host: HostBackend) -> None:
    """The user's Ctrl-C leaves the call, and no process."""
    with pytest.raises(KeyboardInterrupt):
        session.shell("read go; kill -INT $PPID; sleep 60", stdin=b"go\n")
    (running,) = host.live[session.name].commands
    assert running.process.returncode == -signal.SIGKILL


def test_a_signal_does_not_disturb(session: coopfile.Session) -> None:
    """One whose handler returns is no reason to stop waiting."""
    got: list[int] = []
    earlier = signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
    try:
        result = session.shell("read go; kill -USR1 $PPID; sleep 0.05; echo on", stdin=b"go\n")
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert (result.text, got) == ("on\n", [signal.SIGUSR1])


def test_timeouts(session: coopfile.Session) -> None:
    """The default is the plan's; infinity is none; what is not positive is a mistake."""
    assert session.exec(["true"]).timeout == session.plan.limits.timeout / 1000
    assert session.exec(["true"], timeout=math.inf).timeout is None
    assert session.exec(["sleep", "60"], timeout=0.01).status == 124
    for wrong in (0, -1, math.nan):
        with pytest.raises(CoopError, match="timeout is"):
            session.exec(["true"], timeout=wrong)


def test_a_forked_child_does_not_hold_the_input(session: coopfile.Session, tmp_path: Path) -> None:
    """A command whose program forks meanwhile sees the end of its input, however long the child lives."""
    script = f"touch {tmp_path}/begun; sleep 0.2; wc -c"
    results: list[coopfile.Result] = []
    thread = threading.Thread(target=lambda: results.append(session.shell(script, stdin=bytes(1 << 20))))
    thread.start()
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is the point
        child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    thread.join(10)
    is_held = thread.is_alive()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    thread.join()
    assert (results[0].text.strip(), is_held) == (str(1 << 20), False)


@pytest.mark.parametrize("timeout", [30 * 86400, 1e12, 1e300, 10**400])
def test_a_timeout_of_months(session: coopfile.Session, timeout: float) -> None:
    """What is more than poll(2), or Python, takes for a time is one all the same, or none in 30 years."""
    assert session.exec(["echo", "x"], timeout=timeout).text == "x\n"


def test_many_at_once(session: coopfile.Session) -> None:
    """Commands of several threads do not mix their output, nor wait for each other."""
    results: dict[int, coopfile.Result] = {}

    def run(number: int) -> None:
        results[number] = session.shell("read x; echo $x; sleep 0.1", stdin=b"%d\n" % number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[number].text for number in range(12)] == [f"{number}\n" for number in range(12)]


def test_memory_is_bounded(plan: coopfile.Plan, tmp_path: Path) -> None:
    """Reading 200 MB takes no more than what is kept of it."""
    script = (
        "import coopfile, resource, sys\n"
        "from tests.unit.session.host import HostBackend\n"
        "session = coopfile.Session(coopfile.compile(), backend=HostBackend())\n"
        "session.exec(['head', '-c', '1000', '/dev/zero'])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "result = session.exec(['head', '-c', '200000000', '/dev/zero'], output=1000000)\n"
        "assert (len(result.stdout), result.cut_stdout) == (1000000, 199000000), result\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    root = Path(coopfile.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENT,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=True,
    )
    assert int(done.stdout) < 8000  # kilobytes
