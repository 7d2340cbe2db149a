"""Container to argv of Docker's and Podman's command lines, which are nearly the same.

One argument per element and no shell: nothing of a plan is ever parsed but by the
option that it belongs to. Sources: docker-run(1), docker-create(1), podman-run(1);
what was tried on the real engines is in tests/containers.
"""

from __future__ import annotations

import csv
import io

from coopfile.errors import CoopError
from coopfile.plan.hosttools import PROC_MASKED
from coopfile.record import Record
from coopfile.render.container import HOSTNAME, STOP_GRACE, Scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coopfile.plan.launch import Mount
    from coopfile.render.container import Container
    from coopfile.render.facts import Engine
    from coopfile.render.networks import Neighbour

Argv = tuple[str, ...]


class Execution(Record):
    """One more command in a container.

    ``inherited`` are variables that it gets with the values that the engine's own process has, and
    ``file`` has lines of ``NAME=value`` with more. ``input`` tells that it is to have standard input.
    """

    argv: Argv
    inherited: tuple[str, ...] = ()
    file: str = ""
    input: bool = False
    terminal: bool = False


def run(container: Container) -> Argv:
    """Return the argv that runs the command with the caller's streams and leaves nothing behind."""
    return (*_program(container), "run", "--rm", *_options(container), container.image, *container.argv)


def create(container: Container) -> Argv:
    """Return the argv that makes the container and prints its id; ``start`` runs it."""
    return (*_program(container), "create", *_options(container), container.image, *container.argv)


def neighbour(made: Neighbour) -> Argv:
    """Return the argv that starts a container for another's network, and prints its id."""
    engine = made.engine
    argv = [*_called(engine, made.runtime), "run", "--detach", "--name", _checked(made.name)]
    argv += ["--pull", "never", "--hostname", HOSTNAME]
    for name, value in made.labels:
        argv += ["--label", f"{name}={value}"]
    if made.runtime is not None and engine.name == "docker":
        argv += ["--runtime", made.runtime]
    argv += _confined(engine, made.user, made.identities)
    argv += ["--network", "none", *_nameless(engine)]
    argv += [] if made.lowest is None else ["--sysctl", f"net.ipv4.ip_unprivileged_port_start={made.lowest}"]
    argv += _core(engine)
    argv += [] if made.memory is None else ["--memory", f"{made.memory}b"]
    for mount in made.mounts:
        argv += ["--mount", _bind(mount)]
    return (*argv, "--workdir", "/", "--entrypoint", "", made.image, *made.argv)


def keep(container: Container) -> Argv:
    """Return the argv that starts a container that waits for ``execute``; its argv does not count."""
    options = _options(container.replace(terminal=False))
    waiting = ("sleep", "infinity")
    return (*_program(container), "run", "--detach", *options, container.image, *waiting)


def start(container: Container, identifier: str) -> Argv:
    """Return the argv that starts a made container with the caller's streams and waits for its end."""
    keys = ["--detach-keys", _NO_DETACHING] if container.terminal else []
    return (*_program(container), "start", "--attach", "--interactive", *keys, _checked(identifier))


def execute(container: Container) -> Argv:
    """Return the argv that runs the command in the container that ``keep`` started."""
    argv = [*_program(container), "exec", "--interactive"]
    argv += ["--tty"] if container.terminal else []
    argv += ["--user", container.user, "--workdir", container.directory, *_environment(container)]
    return (*argv, container.name, *container.argv)


def attach(engine: Engine, runtime: str | None, identifier: str) -> Argv:
    """Return the argv that starts a made container and stays as long as that runs, which reads its input."""
    return (*_called(engine, runtime), "start", "--attach", "--interactive", _checked(identifier))


def within(engine: Engine, runtime: str | None, identifier: str, execution: Execution) -> Argv:
    """Return the argv that runs a command in a container that runs, as its user and in its directory."""
    argv = [*_called(engine, runtime), "exec", *(["--interactive"] if execution.input else [])]
    argv += ["--tty", "--detach-keys", _NO_DETACHING] if execution.terminal else []
    for name in execution.inherited:
        argv += ["--env", name]
    argv += ["--env-file", execution.file] if execution.file else []
    return (*argv, _checked(identifier), *execution.argv)


def difference(engine: Engine, identifier: str) -> Argv:
    """Return the argv that prints what has changed in a container's root file system, a path a line."""
    return (engine.program, "diff", _checked(identifier))


def stop(engine: Engine, identifier: str) -> Argv:
    """Return the argv that asks a container to end, and ends it after a grace period."""
    return (engine.program, "stop", "--time", str(STOP_GRACE), _checked(identifier))


def remove(engine: Engine, identifier: str) -> Argv:
    """Return the argv that removes a container, running or not, and its anonymous volumes."""
    return (engine.program, "rm", "--force", "--volumes", _checked(identifier))


def commit(engine: Engine, identifier: str, tag: str, unlabelled: Sequence[str] = ()) -> Argv:
    """Return the argv that makes an image of a container's root file system, mounts left out.

    The image has the container's labels, but for the values of those ``unlabelled``.
    """
    changes = [f'LABEL {name}=""' for name in unlabelled]
    options = [word for change in changes for word in ("--change", change)]
    return (engine.program, "commit", *options, _checked(identifier), _checked(tag))


def build(engine: Engine, tag: str, network: str, context: str = "-") -> Argv:
    """Return the argv that builds an image of a Dockerfile on standard input, or of a directory.

    ``network`` is none, host, or the engine's default.
    """
    argv = [
        engine.program,
        "build",
        "--tag",
        _checked(tag),
        "--pull=false" if engine.name == "docker" else "--pull=missing",
    ]
    # Docker's older builder keeps the container of a step that failed.
    argv += ["--force-rm"] if engine.name == "docker" else []
    if network in ("none", "host"):
        argv += ["--network", network]
    return (*argv, context)


def load(engine: Engine, tag: str) -> Argv:
    """Return the argv that makes an image of a root file system's tar on standard input."""
    return (engine.program, "import", "-", _checked(tag))


def _program(container: Container) -> list[str]:
    return _called(container.engine, container.runtime)


def _called(engine: Engine, runtime: str | None) -> list[str]:
    """Return the engine's program; Podman takes the OCI runtime before the verb."""
    if runtime is not None and engine.name == "podman":
        return [engine.program, "--runtime", runtime]
    return [engine.program]


def _checked(name: str) -> str:
    if name.startswith("-") or not name:
        raise CoopError(f"{name!r} is not a name that a container engine takes")
    return name


def _options(container: Container) -> list[str]:
    """Return the options of ``run`` and ``create``."""
    engine = container.engine
    argv = ["--name", container.name, "--interactive", "--pull", "never"]
    argv += [] if container.joined and engine.name == "docker" else ["--hostname", HOSTNAME]
    for name, value in container.labels:
        argv += ["--label", f"{name}={value}"]
    if container.terminal:
        argv.append("--tty")
    if engine.init:
        argv.append("--init")
        argv += ["--init-path", engine.init_path] if engine.init_path else []
    if container.runtime is not None and engine.name == "docker":
        argv += ["--runtime", container.runtime]
    argv += _confined(engine, container.user, container.identities, writable=container.writable)
    argv += _network(container)
    for port in container.publish:
        argv += ["--publish", str(port)]
    argv += _limits(container)
    for scratch in container.scratch:
        argv += ["--tmpfs", _tmpfs(scratch, engine)]
    # --shm-size would make it noexec, and just-in-time compilers map code from it.
    shared = Scratch(target="/dev/shm", size=container.shm, mode=0o1777, uid=0, gid=0)
    argv += ["--tmpfs", _tmpfs(shared, engine)]
    for mount in container.mounts:
        argv += ["--mount", _bind(mount)]
    argv += ["--workdir", container.directory, *_environment(container)]
    # The image's entry point would come before the command.
    return [*argv, "--entrypoint", ""]


def _confined(engine: Engine, user: str, identities: str | None, *, writable: bool = False) -> list[str]:
    """Return the options by which a container is somebody who may do nothing."""
    argv = ["--user", user]
    if identities is not None:
        argv += ["--userns", identities]
    argv += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    if engine.selinux:
        argv += ["--security-opt", "label=disable"]
    argv += [] if writable else ["--read-only"]
    argv += ["--ipc", "private", "--log-driver", "none"]
    argv.append("--no-healthcheck")
    if engine.name == "podman":
        argv += ["--read-only-tmpfs=false", "--http-proxy=false", "--image-volume", "ignore"]
        argv += ["--security-opt", "mask=" + ":".join(f"/proc/{name}" for name in PROC_MASKED)]
    return argv


def _network(container: Container) -> list[str]:
    if container.joined:
        return ["--network", f"container:{_checked(container.joined)}"]
    if container.network == "proxy":
        raise CoopError('network.mode = "proxy": there is no network that the proxy serves')
    argv = ["--network", "bridge" if container.network == "veth" else container.network]
    return [*argv, *_nameless(container.engine)] if container.network == "none" else argv


def _nameless(engine: Engine) -> list[str]:
    """Return the options by which a container without a network knows nobody's name servers and domains.

    Docker would write down the host's; Podman writes none, and takes no such option here.
    """
    return ["--dns", "0.0.0.0", "--dns-search", "."] if engine.name == "docker" else []


def _limits(container: Container) -> list[str]:
    engine = container.engine
    argv = _core(engine)
    if container.memory is not None:
        argv += ["--memory", f"{container.memory}b"]
        if container.swap:
            argv += ["--memory-swap", f"{container.memory}b"]
    if container.cpus is not None:
        argv += ["--cpus", f"{container.cpus / 1000:g}"]
    if container.pids is not None:
        argv += ["--pids-limit", str(container.pids)]
    return argv


def _core(engine: Engine) -> list[str]:
    if engine.name == "podman" and not engine.rootless:
        # With any other, Podman sets nofile and nproc too, to what root may lack the right to have.
        return ["--ulimit", "host"]
    # 1, not 0: a pipe in the host's core_pattern would be started with 0 too, core(5).
    return ["--ulimit", "core=1:1"]


def _tmpfs(scratch: Scratch, engine: Engine) -> str:
    if ":" in scratch.target:  # where the options begin
        raise CoopError(
            f"{scratch.target!r}: container engines cannot make a directory with a colon in its name",
            "give another path, or use the native back end",
        )
    # Engines begin with noexec,nosuid,nodev: builds and virtual environments below /tmp need exec.
    options = f"rw,exec,nosuid,nodev,size={scratch.size},mode={scratch.mode:o}"
    if (scratch.uid, scratch.gid) != (0, 0):
        # Podman 4 takes no ids here, but a word for those of --user.
        options += ",U" if engine.name == "podman" else f",uid={scratch.uid},gid={scratch.gid}"
    return f"{scratch.target}:{options}"


def _bind(mount: Mount) -> str:
    """Return the value of ``--mount``, one record of CSV: a path may hold anything but a carriage return."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}", "bind-propagation=rprivate"]
    if not mount.write:
        fields.append("readonly")
    for path in (mount.source, mount.target):
        if "\r" in path:
            raise CoopError(f"{path!r}: container engines cannot mount a path with a carriage return")
    text = io.StringIO()
    # What the writer takes for the end of a line is what it quotes.
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()[:-1]


def _environment(container: Container) -> list[str]:
    argv = []
    if container.engine.proxies:
        given = {name for name, _ in (*container.environment, *container.inherited)}
        for name in sorted(_PROXIES - given):
            argv += ["--env", f"{name}="]
    for name, value in container.environment:
        argv += ["--env", f"{name}={value}"]
    for name, _ in container.inherited:
        argv += ["--env", name]
    return argv


def variables(
    container: Container, values: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return what the engine's own process needs in its environment to pass the inherited variables on.

    ``values`` is the host's environment and ``environment`` that process's own. Raises
    CoopError for a variable that the engine itself would act on.
    """
    passed = []
    for name, host in container.inherited:
        value = values[host]
        if not may_have(name, value, environment):
            raise CoopError(
                f"env.{name}: {container.engine.name} itself would act on the value of {host}",
                "give it another name, or use the native back end",
            )
        passed.append((name, value))
    return tuple(passed)


def may_have(name: str, value: str, environment: Mapping[str, str]) -> bool:
    """Tell whether an engine's own process may have a variable that is only to be passed on.

    ``environment`` is that process's own.
    """
    return environment.get(name) == value or not (name in environment or name.startswith(_ACTED_ON))


# Keys that nobody presses: else the engine keeps ^P for itself, and ^P^Q abandons the command.
_NO_DETACHING = "ctrl-^,ctrl-_,ctrl-^,ctrl-_"
_PROXIES = frozenset(
    name
    for upper in ("ALL_PROXY", "FTP_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
    for name in (upper, upper.lower())
)
# Prefixes of what changes how an engine's command line, or the loader, works.
_ACTED_ON = (
    "_CONTAINERS_",
    "ALL_PROXY",
    "BUILD",
    "CONTAINER",
    "CF",
    "DBUS",
    "DOCKER",
    "DYLD_",
    "GO",
    "HOME",
    "HTTP",
    "LD_",
    "MALLOC",
    "NO_PROXY",
    "NS",
    "PATH",
    "PODMAN",
    "REGISTRY",
    "SSH",
    "SSL",
    "STORAGE",
    "TMPDIR",
    "XDG",
)
