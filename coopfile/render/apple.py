"""Container to argv of Apple's command line, ``container``: every container a virtual machine.

The verbs are docker's. What differs, and why, was read in the sources of
apple/container 1.2.2 (command-reference.md; Flags, Parser and Utility.swift;
RuntimeService.swift), of apple/containerization 0.40.1, which that runs on, and of
swift-argument-parser 1.7; nothing was tried on macOS. Options end at the first
positional argument, and all after it is the command's: a ``--`` there would be too.
"""

from __future__ import annotations

import re

from coopfile.errors import CoopError
from coopfile.plan.launch import Weakening
from coopfile.render import apple_files
from coopfile.render.apple_images import build, check_dockerfile, commit, inspect_image
from coopfile.render.apple_text import (
    Argv,
    argv_of,
    begins_alone,
    fits_field,
    identifier,
    image_name,
    unspeakable,
)
from coopfile.render.container import STOP_GRACE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.render.container import Container, Scratch
    from coopfile.render.docker import Execution
    from coopfile.render.facts import Engine, Facts

__all__ = [
    "attach",
    "build",
    "check_dockerfile",
    "commit",
    "create",
    "execute",
    "holes",
    "image_name",
    "inspect_image",
    "keep",
    "listing",
    "remove",
    "run",
    "start",
    "stop",
    "weakenings",
    "within",
]

# The first with --masked-path and --read-only-path, and with export of running containers.
OLDEST = (1, 2, 1)
_DEFAULT_CPUS = 4
_PUBLISH_MAX = 64
_MIB = 2**20
_MEMORY_MIN = 200 * _MIB
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?", re.ASCII)


def run(container: Container, facts: Facts) -> Argv:
    """Return the argv that runs the command with the caller's streams and leaves nothing behind."""
    return argv_of(container.engine, "run", "--rm", "--progress", "none", *_foreground(container, facts))


def create(container: Container, facts: Facts) -> Argv:
    """Return the argv that makes the container and prints its name; ``start`` runs it."""
    return argv_of(container.engine, "create", *_foreground(container, facts))


def keep(container: Container, facts: Facts) -> Argv:
    """Return the argv that starts a container that waits for ``execute``; its argv does not count.

    It has the whole environment: ``execute`` adds to that and replaces nothing, and most
    programs see the first of two values. A variable that has changed since is not changed inside.
    """
    options = ["--detach", "--progress", "none", *_options(container, facts)]
    waiting = ("--entrypoint=sleep", image_name(container.image), "infinity")
    return argv_of(container.engine, "run", *options, *waiting)


def start(container: Container, name: str) -> Argv:
    """Return the argv that starts a made container with the caller's streams and waits for its end."""
    return attach(container.engine, name)


def attach(engine: Engine, name: str) -> Argv:
    """Return the argv that starts a made container and stays as long as that runs, which reads its input."""
    return argv_of(engine, "start", "--attach", "--interactive", identifier(name))


def execute(container: Container) -> Argv:
    """Return the argv that runs the command in the container that ``keep`` started.

    Limits, capabilities and mounts are those of the container.
    """
    options = ["--interactive", *(["--tty"] if container.terminal else [])]
    options += ["--user", container.user, "--workdir", container.directory, *_environment(container)]
    return argv_of(container.engine, "exec", *options, identifier(container.name), *container.argv)


def within(engine: Engine, name: str, execution: Execution) -> Argv:
    """Return the argv that runs a command in a container that runs, as its user and in its directory."""
    options = ["--interactive"] if execution.input or execution.terminal else []
    options += ["--tty"] if execution.terminal else []
    for variable in execution.inherited:
        options += ["--env", variable]
    options += ["--env-file", execution.file] if execution.file else []
    return argv_of(engine, "exec", *options, identifier(name), *execution.argv)


def listing(engine: Engine) -> Argv:
    """Return the argv that prints every container as a JSON array: there is no filter."""
    return argv_of(engine, "list", "--all", "--format", "json")


def stop(engine: Engine, name: str) -> Argv:
    """Return the argv that asks a container to end, and ends it after a grace period."""
    return argv_of(engine, "stop", "--time", str(STOP_GRACE), identifier(name))


def remove(engine: Engine, name: str) -> Argv:
    """Return the argv that removes a container, running or not. It fails if there is none."""
    return argv_of(engine, "delete", "--force", identifier(name))


def weakenings(container: Container, facts: Facts) -> tuple[Weakening, ...]:
    """Return what of a plan Apple's command line cannot keep, beside the container's own list."""
    root = container.user.startswith("0:")
    found = []
    if container.cpus is None:
        text = f"{_DEFAULT_CPUS} processors, Apple's default, rather than all"
        found.append(Weakening("limits.cpus", text, f"say how many: limits.cpus = {_DEFAULT_CPUS}"))
    elif container.cpus % 1000:
        whole = container.cpus // 1000
        text = f"{whole} rather than {container.cpus / 1000:g}: a machine has whole processors"
        found.append(Weakening("limits.cpus", text, f"limits.cpus = {whole + 1}"))
    if container.pids is not None and root:
        # RLIMIT_NPROC holds everyone but the root of the first user namespace, and there is no other.
        text = "not enforced: processes can be limited per user only, and root is above that"
        found.append(Weakening("limits.pids", text, 'session.user = "me"'))
    elif container.pids is not None:
        text = "held per user: set-user-ID programs of the image that become root are above it"
        found.append(Weakening("limits.pids", text))
    if not root:
        text = "set-user-ID programs of the image change the user, to one that has no capability either"
        found.append(Weakening("session.user", text))
    if container.runtime is not None:
        text = f"{container.runtime} is not used: the container is a virtual machine of its own"
        found.append(Weakening("sandbox.runtime", text))
    shares = apple_files.shares(container.mounts, facts)
    return (*found, *apple_files.weakened(shares, facts))


def holes(container: Container, facts: Facts) -> tuple[Weakening, ...]:
    """Return what gives the sandbox more than the plan, beside the container's own list."""
    return tuple(apple_files.reached(apple_files.shares(container.mounts, facts)))


def _foreground(container: Container, facts: Facts) -> list[str]:
    """Return the options of ``run`` and ``create`` with the caller's streams, the image and the command."""
    options = ["--interactive", *(["--tty"] if container.terminal else [])]
    program, *arguments = container.argv
    if not begins_alone(program):
        raise CoopError(f"Apple's container cannot run {program!a}: it begins with a combining character")
    # Otherwise the image's entry point would come first: it can be replaced, not emptied. Joined by =,
    # for a value that begins with a dash would be an option.
    options += [*_options(container, facts), f"--entrypoint={program}"]
    return [*options, image_name(container.image), *arguments]


def _options(container: Container, facts: Facts) -> list[str]:
    """Return the options that make a container what the plan says."""
    _check_version(container.engine)
    argv = ["--name", identifier(container.name)]
    for name, value in container.labels:
        if "=" in name or "=" in value:
            raise CoopError(f"Apple's container cannot hold the label {name}={value}: it has two signs of =")
        argv += ["--label", f"{name}={value}"]
    if container.engine.init:
        argv.append("--init")
    argv += ["--user", container.user, "--cap-drop", "ALL"]
    argv += [] if container.writable else ["--read-only"]
    argv += [*_network(container), *_limits(container)]
    for scratch in container.scratch:
        argv += ["--mount", _tmpfs(scratch)]
    argv += ["--shm-size", str(container.shm)]
    argv += apple_files.options(apple_files.shares(container.mounts, facts), facts)
    return [*argv, "--workdir", container.directory, *_environment(container)]


def _network(container: Container) -> list[str]:
    if container.network == "none":
        return ["--network", "none"]
    if container.network != "veth":
        raise CoopError(f'network.mode = "{container.network}" cannot be had with Apple\'s container')
    # Without --network it is the default one: macOS 15 has no other.
    argv = []
    ports = container.publish
    if len(ports) > _PUBLISH_MAX:
        raise CoopError(f"network.publish: Apple's container takes no more than {_PUBLISH_MAX} ports")
    if len({port.host for port in ports}) < len(ports):
        raise CoopError("network.publish: Apple's container takes a port of the host for one address only")
    for port in ports:
        if min(port.host, port.sandbox) < 2:
            raise CoopError(f"network.publish: {port}: Apple's container takes ports from 2")
        argv += ["--publish", str(port)]
    return argv


def _limits(container: Container) -> list[str]:
    argv = ["--ulimit", "core=0"]
    if container.memory is not None:
        if container.memory < _MEMORY_MIN:
            raise CoopError(
                f"limits.memory: Apple's container takes no less than {_MEMORY_MIN // _MIB} MiB",
                f'limits.memory = "{_MEMORY_MIN // _MIB}m"',
            )
        argv += ["--memory", f"{container.memory // _MIB}M"]
    if container.cpus is not None:
        if container.cpus < 1000:
            raise CoopError(
                f"limits.cpus: {container.cpus / 1000:g} cannot be had: a machine has whole processors",
                "limits.cpus = 1",
            )
        argv += ["--cpus", str(container.cpus // 1000)]
    if container.pids is not None:
        argv += ["--ulimit", f"nproc={container.pids}"]
    return argv


def _tmpfs(scratch: Scratch) -> str:
    # --tmpfs takes a path alone. A size of 0 would be no limit, and what is mounted stays root's.
    if scratch.size < _MIB:
        raise CoopError("limits.tmp: Apple's container takes no less than 1 MiB", 'limits.tmp = "1m"')
    if not fits_field(scratch.target):
        raise unspeakable(scratch.target)
    mode = scratch.mode if scratch.uid == 0 else 0o1777
    return f"type=tmpfs,target={scratch.target},size={scratch.size // _MIB}M,mode={mode:o}"


def _environment(container: Container) -> list[str]:
    argv = []
    for name, value in container.environment:
        if not begins_alone(value):
            raise CoopError(
                f"env.{name}: Apple's container loses a value that begins with {value[0]!a}",
                "begin it with a letter, a digit or a blank",
            )
        argv += ["--env", f"{name}={value}"]
    for name, _ in container.inherited:
        argv += ["--env", name]
    return argv


def _check_version(engine: Engine) -> None:
    found = _VERSION.search(engine.version)
    if found and tuple(int(part or 0) for part in found.groups()) < OLDEST:
        oldest = ".".join(str(part) for part in OLDEST)
        raise CoopError(
            f"Apple's container {found.group()} cannot guard single files", f"update it to {oldest} or newer"
        )
