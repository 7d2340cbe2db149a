"""The commands that are compared, each made ready on this machine or skipped with a reason."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping

from bench import dockerd
from bench.measure import Subject
from coopfile.native import syscalls
from coopfile.record import Record

_TIMEOUT = 120
_SIZE = "size=6g"
_DISK = 12 << 30  # bytes
IMAGE = "localhost/coop-bench:latest"
# Programs that need nothing but a kernel: one ends at once, one says that it runs and then waits.
_PROGRAMS = {
    "true": "int main(void) { return 0; }\n",
    "idle": '#include <unistd.h>\nint main(void) { if (write(1, "\\n", 1) == 1) for (;;) pause(); }\n',
}
_INITIALIZE = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}'
_SRT = "@anthropic-ai/sandbox-runtime"


class UnavailableError(Exception):
    """Why something cannot be measured here."""


class Place(Record):
    """Where the measurement happens: ``project`` is the workspace, ``scratch`` holds the rest.

    What coop writes, and the project, are below ``fresh``, which is on an empty file system:
    ``where`` says on which. ``cleanup`` undoes what subjects leave outside ``scratch``.
    """

    project: str
    scratch: str
    fresh: str
    where: str
    cleanup: contextlib.ExitStack


def variables(place: Place) -> dict[str, str]:
    """Return what every subject gets."""
    # coop's caches go to a directory of the bench's; nobody's own settings take part.
    keep = {name: os.environ[name] for name in ("HOME", "PATH", "LANG") if name in os.environ}
    return {
        **keep,
        "XDG_CACHE_HOME": os.path.join(place.fresh, "cache"),
        "XDG_CONFIG_HOME": os.path.join(place.fresh, "config"),
        "XDG_DATA_HOME": os.path.join(place.fresh, "data"),
        "XDG_STATE_HOME": os.path.join(place.fresh, "state"),
    }


def tool(name: str) -> str:
    """Return a program's path."""
    found = shutil.which(name)
    if found is None:
        raise UnavailableError("not installed")
    return found


def call(*argv: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a preparing command; its failure is a reason to skip."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{os.path.basename(argv[0])}: {error}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise UnavailableError(lines[-1][:100])
    return done.stdout


def quietly(*argv: str, environment: Mapping[str, str] | None = None) -> None:
    """Run a command whose failure does not matter."""
    with contextlib.suppress(UnavailableError):
        call(*argv, environment=environment)


def command() -> str:
    """Return the path of coop in the environment of the bench's interpreter."""
    script = os.path.join(os.path.dirname(sys.executable), "coop")
    if not os.path.exists(script):
        raise UnavailableError(f"{script} does not exist")
    return script


def python(place: Place) -> Subject:
    """Return the bare interpreter of the environment that coop runs in."""
    return Subject(
        "python", "python -c pass", (sys.executable, "-c", "pass"), place.project, variables(place)
    )


def coop(place: Place) -> Subject:
    """Return coop with everything on; the warm-up leaves its plan in the cache."""
    return Subject(
        "coop", "coop run -- true", (command(), "run", "--", "true"), place.project, variables(place)
    )


def proxy(place: Place) -> Subject:
    """Return coop with a proxy beside the sandbox."""
    argv = (command(), "run", "--set", "network.mode=proxy", "--", "true")
    return Subject("proxy", "coop run, proxied", argv, place.project, variables(place))


def mcp(place: Place) -> Subject:
    """Return a server of tools that answers a client's first message, and ends when that has gone."""
    script = f"echo '{_INITIALIZE}' | {shlex.quote(command())} mcp"
    return Subject("mcp", "coop mcp: initialize", ("/bin/sh", "-c", script), place.project, variables(place))


def bubblewrap(place: Place) -> Subject:
    """Return bubblewrap with the same namespaces and comparable mounts."""
    argv = (*in_bubblewrap(place), "true")
    call(*argv)
    return Subject("bubblewrap", "bwrap … true", argv, place.project, variables(place))


def in_bubblewrap(place: Place) -> tuple[str, ...]:
    """Return what to put before a command."""
    argv = [tool("bwrap"), "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net"]
    argv += ["--unshare-uts", "--unshare-cgroup-try", "--uid", "0", "--gid", "0", "--hostname", "sandbox"]
    argv += ["--die-with-parent", "--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin"]
    argv += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = f"/{name}"
        if os.path.islink(path):
            argv += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            argv += ["--ro-bind", path, path]
    for path in ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl", "/etc/passwd", "/etc/group"):
        argv += ["--ro-bind-try", path, path]
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/root"]
    argv += ["--bind", place.project, "/workspace", "--chdir", "/workspace", "--"]
    return tuple(argv)


def podman(place: Place) -> Subject:
    """Return podman with a storage of its own, whose only image holds two programs."""
    common, runtime, limits = podman_ready(place)
    argv = (*common, "run", "--rm", "--network", "none", *limits, IMAGE, "/bin/true")
    return Subject("podman", f"podman run ({runtime})", argv, place.project, variables(place))


@functools.lru_cache(maxsize=1)
def podman_ready(place: Place) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Return podman's command line so far, with an OCI runtime that works; its name; and limits of a run."""
    program = tool("podman")
    root = os.path.join(place.scratch, "podman")
    runroot = os.path.join(place.scratch, "podman-run")
    common = (program, "--root", root, "--runroot", runroot, "--storage-driver", "overlay")
    if not any(shutil.which(name) for name in ("crun", "runc")):
        raise UnavailableError("neither crun nor runc is installed")
    # Not `system reset`, which would take networks and volumes of the user's with it.
    place.cleanup.callback(quietly, "umount", os.path.join(root, "overlay"))
    place.cleanup.callback(quietly, *common, "rmi", "--all", "--force")
    call(*common, "import", _image(place), IMAGE)
    limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
    last = UnavailableError("no OCI runtime works")
    for name in ("crun", "runc"):
        if not shutil.which(name):
            continue
        ready = (*common, "--runtime", name)
        try:
            call(*ready, "run", "--rm", "--network", "none", *limits, IMAGE, "/bin/true")
        except UnavailableError as error:
            last = error
            continue
        return ready, name, limits
    raise last


def docker(place: Place) -> Subject:
    """Return docker, with a daemon of its own where one can be started, else with one that answers."""
    program, environment = docker_ready(place)
    argv = (program, "run", "--rm", "--network", "none", IMAGE, "/bin/true")
    call(*argv, environment=environment)
    return Subject("docker", "docker run", argv, place.project, environment)


@functools.lru_cache(maxsize=1)
def docker_ready(place: Place) -> tuple[str, dict[str, str]]:
    """Return docker's client and the variables that lead it to a daemon that has the image."""
    program = tool("docker")
    environment = variables(place)
    lacking = dockerd.needs()
    if lacking is None:
        try:
            where = place.cleanup.enter_context(dockerd.daemon(os.path.join(place.scratch, "docker")))
        except dockerd.DaemonError as error:
            raise UnavailableError(str(error)) from None
        environment.update(where)
    else:
        try:
            call(program, "version", "--format", "{{.Server.Version}}")
        except UnavailableError as error:
            raise UnavailableError(f"{lacking}, and none answers: {error}") from None
    call(program, "import", _image(place), IMAGE, environment=environment)
    place.cleanup.callback(quietly, program, "image", "rm", "--force", IMAGE, environment=environment)
    return program, environment


def runsc(place: Place) -> Subject:
    """Return gVisor, started directly with a bundle of one program."""
    program = tool("runsc")
    bundle = os.path.join(place.scratch, "bundle")
    os.makedirs(os.path.join(bundle, "rootfs", "bin"))
    shutil.copy(static_program(place, "true"), os.path.join(bundle, "rootfs", "bin", "true"))
    spec = {
        "ociVersion": "1.0.0",
        "process": {"args": ["/bin/true"], "cwd": "/", "user": {"uid": 0, "gid": 0}, "terminal": False},
        "root": {"path": "rootfs", "readonly": True},
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
    }
    with open(os.path.join(bundle, "config.json"), "w", encoding="utf-8") as file:
        json.dump(spec, file)
    state = os.path.join(place.scratch, "runsc")
    argv = (
        program,
        "--root",
        state,
        "--network=none",
        "--ignore-cgroups",
        "run",
        "--bundle",
        bundle,
        "bench",
    )
    call(*argv)
    return Subject("runsc", "runsc run", argv, place.project, variables(place))


def srt(place: Place) -> Subject:
    """Return Anthropic's sandbox-runtime, fetched by npm where it is not installed."""
    for name in ("bwrap", "socat", "rg"):
        if not shutil.which(name):
            raise UnavailableError(f"{name} is not installed")
    program = shutil.which("srt")
    if program is None:
        if not shutil.which("npm"):
            raise UnavailableError("neither srt nor npm is installed")
        place_of_it = os.path.join(place.scratch, "srt")
        cache = os.path.join(place.scratch, "npm-cache")
        call("npm", "install", "--prefix", place_of_it, "--cache", cache, "--no-audit", "--no-fund", _SRT)
        program = os.path.join(place_of_it, "node_modules", ".bin", "srt")
    argv = (program, "true")
    call(*argv, environment=variables(place))
    return Subject("srt", "srt true", argv, place.project, variables(place))


SUBJECTS: tuple[tuple[str, Callable[[Place], Subject]], ...] = (
    ("python", python),
    ("coop", coop),
    ("proxy", proxy),
    ("mcp", mcp),
    ("bubblewrap", bubblewrap),
    ("podman", podman),
    ("docker", docker),
    ("runsc", runsc),
    ("srt", srt),
)


def static_program(place: Place, name: str) -> str:
    """Return one of the programs, built with gcc."""
    target = os.path.join(place.scratch, name)
    if not os.path.exists(target):
        source = target + ".c"
        with open(source, "w", encoding="utf-8") as file:
            file.write(_PROGRAMS[name])
        call(tool("gcc"), "-static", "-Os", "-o", target, source)
    return target


def _image(place: Place) -> str:
    """Return a tar file with the programs in /bin, for an engine to import."""
    archive = os.path.join(place.scratch, "image.tar")
    if not os.path.exists(archive):
        with tarfile.open(archive, "w") as tar:
            for name in _PROGRAMS:
                tar.add(static_program(place, name), f"bin/{name}")
    return archive


@contextlib.contextmanager
def a_place(disk: bool) -> Iterator[Place]:
    """Make a project with an empty Coopfile and a scratch directory, and remove both afterwards.

    ``disk`` is ``_file_system``'s.
    """
    with (
        tempfile.TemporaryDirectory(prefix="coop-bench-") as scratch,
        _file_system(scratch, disk) as (fresh, where),
        contextlib.ExitStack() as cleanup,
    ):
        project = os.path.join(fresh, "project")
        os.mkdir(project)
        with open(os.path.join(project, "Coopfile"), "w", encoding="utf-8") as file:
            file.write("coop = 1\n")
        yield Place(project, scratch, fresh, where, cleanup)


@contextlib.contextmanager
def _file_system(scratch: str, disk: bool) -> Iterator[tuple[str, str]]:
    """Give an empty directory, and say what it is on: a tmpfs, or with ``disk`` an ext4 made for it.

    Disks differ from machine to machine by more than what is measured. Both are mounted in a mount
    namespace of the bench's own, which takes root; without, it is whatever ``scratch`` is on.
    """
    directory = os.path.join(scratch, "fresh")
    os.mkdir(directory)
    if os.geteuid() != 0:
        yield directory, "the scratch directory's own file system"
        return
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    if disk:
        image = os.path.join(scratch, "ext4")
        with open(image, "wb") as file:
            file.truncate(_DISK)
        call("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
        call("mount", "-o", "loop", image, directory)
    else:
        syscalls.mount("coop-bench", directory, "tmpfs", 0, _SIZE)
    try:
        yield directory, "an ext4 of its own" if disk else "a tmpfs of its own"
    finally:
        syscalls.umount(directory)
