"""Real sandboxes for tests: who runs coop, in which project, and what was left on the host.

A conftest imports the fixtures ``workshop``, ``actor`` and ``project``; every test
that takes one of the last two runs once per actor: ``root`` (when the tests run as
root) and ``user``, who has no privileges at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import pexpect
import pytest

from tests.installation import install

CHECKOUT = Path(__file__).resolve().parent.parent
NAMES = ("root", "user") if os.geteuid() == 0 else ("user",)
# Seconds that a command in a sandbox may take, on a busy machine; an emulated one needs more.
DEADLINE = float(os.environ.get("TEST_DEADLINE", "60"))
_PREFIX = "coop-tests-"
# Between the ranges that distributions give to people and to services; two runs on one machine need two.
_FIRST_UID = int(os.environ.get("TEST_FIRST_UID", "60100"))
_NAMESPACES = ("unshare", "--user", "--map-root-user", "--pid", "--mount", "--net", "--fork", "true")


class Result:
    """How one ``coop`` command ended: its exit status (negative: the signal) and its streams."""

    def __init__(self, status: int, stdout: bytes, stderr: bytes) -> None:
        self.status = status
        self.stdout = stdout
        self.stderr = stderr

    @property
    def out(self) -> str:
        """Standard output as text."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        """Standard error as text."""
        return self.stderr.decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"Result(status={self.status}, stdout={self.out!r}, stderr={self.err!r})"


class Actor:
    """Somebody who runs coop. ``base`` is a directory of theirs that all may enter."""

    def __init__(self, name: str, uid: int, gid: int, base: Path, coop: tuple[str, ...]) -> None:
        self.name = name
        self.uid = uid
        self.gid = gid
        self.base = base
        self.coop = coop
        """The command ``coop`` as argv."""
        self._made = 0

    @property
    def prefix(self) -> tuple[str, ...]:
        """What turns the tests' own process into the actor; empty when they are the same."""
        if self.uid == os.geteuid():
            return ()
        return ("setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups")

    def own(self, path: Path) -> Path:
        """Give a path (not what is below it) to the actor; return it."""
        if self.uid != os.geteuid():
            os.chown(path, self.uid, self.gid, follow_symlinks=False)
        return path

    def directory(self, name: str) -> Path:
        """Make a new directory of the actor's below ``base``; return it."""
        while True:
            self._made += 1
            path = self.base / f"{name}{self._made}"
            try:
                path.mkdir(0o755)
            except FileExistsError:
                continue  # by another object for the same actor
            break
        path.chmod(0o755)
        return self.own(path)

    def run(
        self,
        *argv: str,
        stdin: bytes = b"",
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Result:
        """Run a command of the host, outside every sandbox, as the actor."""
        given = dict(environment) if environment is not None else plain_environment(self.base)
        return run([*self.prefix, *argv], stdin, cwd or self.base, given)


def run(argv: Sequence[str], stdin: bytes, cwd: Path, environment: Mapping[str, str]) -> Result:
    """Run a command of the host and wait for its end."""
    done = subprocess.run(
        argv, input=stdin, capture_output=True, cwd=cwd, env=environment, timeout=DEADLINE, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


def plain_environment(home: Path) -> dict[str, str]:
    """Return the variables of a caller who has set nothing unusual."""
    return {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "TERM": "dumb",
        "USER": "tester",
    }


class Project:
    """A throw-away project of an actor's: ``directory`` is the workspace, ``home`` their home.

    ``environment`` holds coop's variables and may be changed by a test. ``wrap`` goes in
    front of coop's argv, after the change of user; ``unshared``, if set, replaces what
    makes that change, for tests that need root to arrange something first.
    """

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.home = actor.directory("home")
        self.directory = actor.directory("project")
        self.environment = plain_environment(self.home)
        self.wrap: tuple[str, ...] = ()
        self.unshared: tuple[str, ...] = ()
        self._running: list[subprocess.Popen[bytes]] = []
        self._terminals: list[pexpect.spawn[str]] = []
        self.coopfile("")

    def coopfile(self, text: str, *, allow: bool = True) -> None:
        """Write the Coopfile, and approve what it widens unless told not to."""
        self.write("Coopfile", text)
        if text and allow:
            self.coop("allow", "--quiet")  # a Coopfile with mistakes is the test's business

    def write(self, name: str, text: str | bytes = "", mode: int = 0o644) -> Path:
        """Write a file of the actor's in the workspace (or at an absolute path); return its path."""
        path = self.directory / name
        self.mkdir(path.parent)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(mode)
        return self.actor.own(path)

    def mkdir(self, name: str | Path) -> Path:
        """Make a directory of the actor's, and those above it, in the workspace; return its path."""
        path = self.directory / name
        if not path.is_dir():
            self.mkdir(path.parent)
            path.mkdir(0o755)
            self.actor.own(path)
        return path

    def link(self, name: str, target: str) -> Path:
        """Make a symbolic link of the actor's in the workspace; return its path."""
        path = self.directory / name
        self.mkdir(path.parent)
        path.symlink_to(target)
        return self.actor.own(path)

    def argv(self, argv: Sequence[str], options: Sequence[str] = (), cwd: Path | None = None) -> list[str]:
        """Return the whole command line of ``coop run OPTIONS -- ARGV``."""
        place = [] if cwd is not None else ["-C", str(self.directory)]
        tail = ["--", *argv] if argv else []
        return [
            *(self.unshared or self.actor.prefix),
            *self.wrap,
            *self.actor.coop,
            "run",
            *place,
            *options,
            *tail,
        ]

    def run(
        self,
        *argv: str,
        options: Sequence[str] = (),
        stdin: bytes | None = None,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        timeout: float = DEADLINE,
    ) -> Result:
        """Run a command in the sandbox and wait for its end; ``environment`` adds to the project's.

        Without ``cwd`` coop stands outside and is told the project with ``-C``.
        """
        process = self.popen(
            *argv,
            options=options,
            cwd=cwd,
            environment=environment,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        )
        stdout, stderr = process.communicate(stdin, timeout=timeout)
        return Result(process.returncode, stdout, stderr)

    def shell(self, script: str, **how: Any) -> Result:
        """Run a shell script in the sandbox; takes what ``run`` takes."""
        return self.run("sh", "-c", script, **how)

    def output(self, script: str, **how: Any) -> str:
        """Run a shell script that has to succeed; return its standard output without the last newline."""
        result = self.shell(script, **how)
        assert result.status == 0, result
        return result.out.rstrip("\n")

    def python(self, script: str, *arguments: str, **how: Any) -> Result:
        """Run a Python program in the sandbox with the host's own interpreter."""
        return self.run("/usr/bin/python3", "-I", "-c", script, *arguments, **how)

    def popen(
        self,
        *argv: str,
        options: Sequence[str] = (),
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = subprocess.PIPE,
        stderr: int | IO[Any] | None = subprocess.PIPE,
        **how: Any,
    ) -> subprocess.Popen[bytes]:
        """Start a command in the sandbox; ended with the test if need be. ``pid`` is coop's own."""
        process = subprocess.Popen(
            self.argv(argv, options, cwd),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd or self.actor.base,
            env={**self.environment, **(environment or {})},
            start_new_session=True,
            **how,
        )
        self._running.append(process)
        return process

    def terminal(self, *argv: str, options: Sequence[str] = ()) -> pexpect.spawn[str]:
        """Start a command in the sandbox from a terminal; closed with the test."""
        command = self.argv(argv, options)
        environment: Any = self.environment
        made = pexpect.spawn(
            command[0], command[1:], env=environment, timeout=DEADLINE, echo=False, encoding="utf-8"
        )
        self._terminals.append(made)
        return made

    def coop(self, *argv: str, stdin: bytes = b"") -> Result:
        """Run another verb of coop, such as ``coop("plan", "--json")``, in the project."""
        command = [*(self.unshared or self.actor.prefix), *self.wrap, *self.actor.coop, *argv]
        return run(command, stdin, self.directory, self.environment)

    def tree(self) -> dict[str, tuple[Any, ...]]:
        """Return the workspace as it is on the host: mode, owner, and content or target per path."""
        return tree(self.directory)

    def close(self) -> None:
        """End what still runs, and wait until it is gone."""
        for terminal in self._terminals:
            terminal.close(force=True)
        for process in self._running:
            below = descendants(process.pid)
            if process.poll() is None:
                process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            process.wait(DEADLINE)
            if not wait_gone(below, 10.0):
                kill(*alive(below))


def tree(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return mode, owner, and content or target of every path below a directory, by relative path.

    What vanishes meanwhile is left out.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(directory, name)
            content: str | bytes = b""
            try:
                status = path.lstat()
                if stat.S_ISLNK(status.st_mode):
                    content = os.readlink(path)
                elif stat.S_ISREG(status.st_mode):
                    content = path.read_bytes()
            except FileNotFoundError:
                continue
            found[str(path.relative_to(root))] = (oct(status.st_mode), status.st_uid, status.st_gid, content)
    return found


def processes() -> dict[int, tuple[int, str]]:
    """Return (parent, state) of every process of the host."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path("/proc", name, "stat").read_text(errors="replace")
            except OSError:
                continue
            state, parent = text[text.rindex(")") + 2 :].split()[:2]
            found[int(name)] = (int(parent), state)
    return found


def descendants(pid: int) -> list[int]:
    """Return the living descendants of a process, parents first: [monitor, PID 1, command, …]."""
    everything = processes()
    found, pending = [], [pid]
    while pending:
        parent = pending.pop(0)
        children = [child for child, (above, state) in everything.items() if above == parent and state != "Z"]
        found += sorted(children)
        pending += sorted(children)
    return found


def alive(pids: Sequence[int]) -> list[int]:
    """Return those of some processes that are still there and not zombies."""
    everything = processes()
    return [pid for pid in pids if pid in everything and everything[pid][1] != "Z"]


def kill(*pids: int) -> None:
    """Kill some processes; those that have ended already do not matter."""
    assert all(pid > 1 for pid in pids), "init adopts what loses its parent, and is nobody's to kill"
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_gone(pids: Sequence[int], seconds: float = DEADLINE) -> bool:
    """Wait until some processes have ended; tell whether they have."""
    return bool(wait_until(lambda: not alive(pids), seconds))


def wait_until(condition: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    """Wait until a condition holds and return its value; falsy when it never did."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.01)


def one_second(project: Project) -> tuple[str, str]:
    """Return the option that ends a command a second after its start, or a few on a slow machine.

    Its time counts from before the sandbox is made, which takes seconds on an emulated one.
    """
    began = time.monotonic()
    assert project.run("true").status == 0
    return "--timeout", f"{1 + 2 * (time.monotonic() - began):.1f}s"


def cgroup_directories() -> set[str]:
    """Return every control group of coop's making on this machine, and those that systemd made for it."""
    found: set[str] = set()
    for directory, names, _ in os.walk("/sys/fs/cgroup"):
        found.update(
            os.path.join(directory, name) for name in names if re.fullmatch(r"coop-\d+(-\d+|\.scope)?", name)
        )
    return found


def abandoned_cgroups(before: set[str]) -> set[str]:
    """Return coop's control groups that came since ``before`` and whose maker is dead."""
    new = cgroup_directories() - before
    makers = ((path, path.removesuffix(".scope").rpartition("-")[2]) for path in new)
    return {path for path, maker in makers if not os.path.exists(f"/proc/{maker}")}


def mounts() -> str:
    """Return the mounts of the host's own namespace, as the kernel tells them.

    But for those of engines' stores, which any program may make that asks an engine for something.
    """
    lines = Path("/proc/self/mountinfo").read_text().splitlines(keepends=True)
    return "".join(line for line in lines if "/containers/storage/" not in line.split()[4])


class Workshop:
    """The tests' base directory, and an installation of coop there that everybody can run."""

    def __init__(self) -> None:
        _sweep()
        self.base = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")).resolve()
        self.base.chmod(0o755)
        self._coop: tuple[str, ...] | None = None
        self._sharing = contextlib.ExitStack()

    def close(self) -> None:
        """Remove everything."""
        self._sharing.close()
        shutil.rmtree(self.base, ignore_errors=True)

    @cached_property
    def shared(self) -> Path:
        """A directory of all workers of this run, for what takes long to make; the last one removes it."""
        run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
        directory = Path(tempfile.gettempdir()).resolve() / f"{_PREFIX}{run}-shared"
        self._sharing.enter_context(_used_by_many(directory))
        return directory

    @property
    def library(self) -> Path:
        """Where the package and its dependencies are copied to."""
        return self.base / "lib"

    def actor(self, name: str) -> Actor:
        """Return ``root`` or ``user``; skips the test when this machine cannot have them."""
        if name == "user" and os.geteuid() == 0:
            uid = gid = _free_uid()
            if shutil.which("setpriv") is None:
                pytest.skip("setpriv (util-linux) is needed to become an unprivileged user")
        else:
            uid, gid = os.geteuid(), os.getegid()
        base = self.base / name
        new = not base.exists()
        if new:
            base.mkdir(0o755)
            base.chmod(0o755)
            _give_podman_a_store(base)
        actor = Actor(name, uid, gid, base, self._install())
        actor.own(base)
        if new:
            tried = actor.run(*_NAMESPACES)
            if tried.status:
                pytest.skip(f"{name} can make no namespaces on this machine: {tried.err.strip()}")
            tried = actor.run(*actor.coop, "--version")
            assert tried.status == 0, f"{name} cannot run the installation in {self.base}: {tried}"
        return actor

    def _install(self) -> tuple[str, ...]:
        """Install coop once; return its argv."""
        if self._coop is None:
            self._coop = install(CHECKOUT, self.library, self.base / "coop")
        return self._coop


@contextlib.contextmanager
def _used_by_many(directory: Path) -> Iterator[None]:
    """Have a directory for as long as anybody uses it."""
    while True:
        directory.mkdir(0o755, exist_ok=True)
        directory.chmod(0o755)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.fstat(descriptor).st_nlink:  # not removed meanwhile by the last who had it
            break
        os.close(descriptor)
    try:
        yield
    finally:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        os.close(descriptor)


def _give_podman_a_store(base: Path) -> None:
    """Write a storage.conf: with the machine's own, `podman info` leaves a mount, which other tests count."""
    places = f'runroot = "{base}/containers/run"\ngraphroot = "{base}/containers/store"\n'
    (base / "storage.conf").write_text(f'[storage]\ndriver = "vfs"\n{places}')


def _free_uid() -> int:
    """Return a uid without an account, another one for every worker of pytest-xdist.

    Or TEST_UID, who may have one, and a manager of systemd's: what coop does with those is shown by that.
    """
    if given := os.environ.get("TEST_UID"):
        return int(given)
    worker = re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or "0"
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    uid = _FIRST_UID + 100 * int(worker)
    while uid in taken:
        uid += 1
    return uid


def _sweep() -> None:
    """Remove the base directories of test runs that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = path.name[len(_PREFIX) :].partition("-")[0]
        dead = owner.isdigit() and not os.path.exists(f"/proc/{owner}")
        if dead and path.lstat().st_uid == os.geteuid():
            shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def workshop() -> Iterator[Workshop]:
    """Yield the installation that the sandboxes of this test run are made with."""
    made = Workshop()
    yield made
    made.close()


@pytest.fixture(scope="session", params=NAMES)
def actor(request: pytest.FixtureRequest, workshop: Workshop) -> Actor:
    """Return each actor in turn."""
    return workshop.actor(request.param)


@pytest.fixture
def project(actor: Actor) -> Iterator[Project]:
    """Yield a fresh project of the actor's, on the native back end only: tests/containers has the others."""
    made = Project(actor)
    made.environment["COOP_SANDBOX_BACKEND"] = "native"
    made.environment["CONTAINERS_STORAGE_CONF"] = str(actor.base / "storage.conf")
    yield made
    made.close()
