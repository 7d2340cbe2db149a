"""What coop runs in containers beside commands: the same in every shell that an image may have."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from coopfile.engines import inside
from tests.sandboxes import wait_until

SHELLS = [
    shell
    for shell in (("dash",), ("bash",), ("bash", "--posix"), ("busybox", "sh"))
    if shutil.which(shell[0])
]
EACH = pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
LEAVES = (
    "trap '' TERM; sleep 100 & setsid sleep 100 & "
    "(setsid env -i sh -c 'sleep 100; :' & wait) & touch up; wait"
)


def run(
    shell: tuple[str, ...], argv: tuple[str, ...], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run what is meant for /bin/sh by another shell."""
    given = {"PATH": os.environ["PATH"], **(environment or {})}
    whole = [*shell, *argv[1:]]
    return subprocess.run(whole, env=given, capture_output=True, text=True, timeout=60, check=False)


def counted(shell: tuple[str, ...], token: str) -> int:
    """Return how many processes a command has, all that it starts included: the last may be on its way."""
    deadline = time.monotonic() + 60
    while True:
        count = int(run(shell, inside.asking(token, 0, strays=False)).stdout)
        if count >= 5 or time.monotonic() > deadline:
            assert count >= 5
            return count


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], tuple[str, subprocess.Popen[bytes]]]]:
    """Return what starts a command that leaves others behind; it returns its token."""
    started = []

    def begin() -> tuple[str, subprocess.Popen[bytes]]:
        token = secrets.token_hex(8)
        environment = {"PATH": os.environ["PATH"], inside.TOKEN: token}
        process = subprocess.Popen(
            ["sh", "-c", LEAVES], env=environment, cwd=tmp_path, start_new_session=True
        )
        started.append((token, process))
        while not (tmp_path / "up").exists():
            pass
        (tmp_path / "up").unlink()
        return token, process

    yield begin
    for token, process in started:
        subprocess.run(inside.killing(token, strays=False), timeout=60, check=False)
        process.wait(60)


@EACH
def test_a_container_waits_until_its_input_ends(shell: tuple[str, ...]) -> None:
    """It says when it is ready, with the numbers of its processes, and says nothing more."""
    argv = inside.waiting("ready-now")
    process = subprocess.Popen(
        [*shell, *argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdin is not None and process.stdout is not None
    ready, first, second, began = process.stdout.readline().split()
    assert (ready, int(first)) == ("ready-now", process.pid)
    assert Path(f"/proc/{second}").exists() and began == run(shell, inside.since()).stdout.strip()
    process.stdin.write("what a command writes there\n")
    process.stdin.close()
    assert process.stdout.read() == ""
    assert process.wait(60) == 0
    process.stdout.close()


@EACH
def test_all_of_a_command_is_found(
    shell: tuple[str, ...], start: Callable[[], tuple[str, subprocess.Popen[bytes]]]
) -> None:
    """By its variable, or by who started it; nothing of another one is."""
    (token, process), (other, _) = start(), start()
    count = counted(shell, token)
    assert counted(shell, other) == count
    assert run(shell, inside.asking("0" * 16, 0, strays=False)).stdout == "0\n"
    # All are deaf to TERM or not; none is left of this one after the killing.
    assert run(shell, inside.asking(token, 15, strays=False)).stdout == f"{count}\n"
    assert run(shell, inside.killing(token, strays=False)).returncode == 0
    assert process.wait(60) == -signal.SIGKILL
    assert run(shell, inside.asking(token, 0, strays=False)).stdout == "0\n"
    assert run(shell, inside.asking(other, 0, strays=False)).stdout == f"{count}\n"


@EACH
def test_a_signal_goes_to_the_group_of_the_first(
    shell: tuple[str, ...], start: Callable[[], tuple[str, subprocess.Popen[bytes]]]
) -> None:
    """What has a group of its own does not get it."""
    token, process = start()
    before = counted(shell, token)
    got = int(run(shell, inside.signalling(token, signal.SIGKILL)).stdout)
    assert 0 < got < before
    assert process.wait(60) == -signal.SIGKILL
    assert run(shell, inside.signalling("0" * 16, signal.SIGKILL)).stdout == "0\n"


@EACH
def test_a_command_is_entered(shell: tuple[str, ...]) -> None:
    """It starts in its directory with its words and variables as they are; what cannot start says why."""
    began = run(shell, inside.since()).stdout.strip()
    words = ("printf", "%s|", "", "a b", "$HOME", "-n", "*", "ü\n")
    done = run(shell, inside.entering(began, "/", words))
    assert (done.returncode, done.stdout) == (0, "|a b|$HOME|-n|*|ü\n|"), done
    done = run(shell, inside.entering(began, "/tmp", ("env",)), {"A": "1\n2", "PWD": "/x"})
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert found["PWD"] == "/tmp" and found["A"] == "1" and "OLDPWD" not in found
    assert run(shell, inside.entering(began, "/nowhere", ("true",))).returncode == 126
    assert run(shell, inside.entering(began, "/", ("nowhere",))).returncode == 127
    assert run(shell, inside.entering(began, "/", ("/etc/passwd",))).returncode == 126
    done = run(shell, inside.entering(began, "/", ("-x",)))
    assert done.returncode == 127 and "begins with a dash" in done.stderr


@EACH
def test_nothing_starts_in_another_container(shell: tuple[str, ...]) -> None:
    """One that was started again has another first process."""
    done = run(shell, inside.entering("1234567", "/", ("echo", "started")))
    assert (done.returncode, done.stdout) == (inside.OTHER, "")


@EACH
def test_processes_are_counted(shell: tuple[str, ...]) -> None:
    """But those that are coop's own, and the one that counts."""

    # In a PID namespace of their own, for others come and go meanwhile.
    alone = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*alone, "true"], capture_output=True, timeout=60, check=False).returncode:
        pytest.skip("no namespaces here")
    script = 'sleep 100 & sleep 100 & "$@"; exit $?'

    def counted(*own: int) -> int:
        argv = [*alone, "sh", "-c", script, "sh", *shell, *inside.counting(own)[1:]]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
        number, memory = map(int, done.stdout.split())
        assert memory > 0
        return number

    assert (counted(), counted(1), counted(1, 2)) == (3, 2, 1)


@EACH
def test_paths_are_described(shell: tuple[str, ...], tmp_path: Path) -> None:
    """By type, size, permissions and, but for directories, when they were changed, whatever their names."""
    (tmp_path / "a\nb -x").write_text("four")
    (tmp_path / "-d").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    names = ("a\nb -x", "-d", "link", "pipe", "none")
    for path in tmp_path.iterdir():
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o640)

    def described() -> list[list[str]]:
        done = run(shell, inside.describing([f"{tmp_path}/{name}" for name in names]))
        return [line.split(" ", 3) for line in done.stdout.split("\n")]

    def described_again(path: Path) -> list[str]:
        path.chmod(0o640)  # the clock of a file system may be coarse
        return described()[0]

    found = described()
    assert [line[:3] for line in found[:4]] == [
        ["file", "4", "640"],
        ["directory", "", "755"],
        ["link", "", "777"],
        ["pipe", "", "640"],
    ]
    assert found[4:] == [["", "", ""], [""]]
    assert [len(line) for line in found[:4]] == [4, 3, 4, 4] and described() == found
    path = tmp_path / names[0]
    times = path.stat()
    path.write_text("five"[:4])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert wait_until(lambda: described_again(path) != found[0])
    assert described()[1:] == found[1:]
