"""Container engines for tests: who calls them, with which variables, and with which images."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.engines import images
from tests.engines.cell import Cell, UnusableError, discard, end_of, sweep
from tests.engines.daemons import Daemon
from tests.engines.registry import Registry, free_port
from tests.sandboxes import Actor, Result, Workshop, plain_environment, run

NAMES = ("docker", "docker+runsc", "podman", "podman-rootless")
"""What every test of engines runs on."""
MORE_NAMES = ("docker-remapped", "docker-rootless")
"""What a test may ask for by name."""


class Inhabitant(Actor):
    """Somebody in the cell, of whose groups one may be that of docker's socket."""

    def __init__(self, actor: Actor, cell: Cell, *groups: int) -> None:
        base = actor.base.with_name("-".join([actor.name, "in-cell", *map(str, groups)]))
        base.mkdir()
        base.chmod(0o755)
        super().__init__(actor.name, actor.uid, actor.gid, actor.own(base), actor.coop)
        self._cell = cell
        self._groups = ",".join(str(group) for group in groups)

    @property
    def prefix(self) -> tuple[str, ...]:
        """What turns the tests' own process into the actor, in the cell."""
        groups = f"--groups={self._groups}" if self._groups else "--clear-groups"
        return (*self._cell.prefix, "setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", groups)


class Engine:
    """A container engine as its callers see it.

    ``program`` is what they call it by, ``runtime`` the OCI runtime to ask for, if any.
    ``environment`` is what has to be added to theirs, ``actor`` one who may use it.
    """

    def __init__(
        self,
        name: str,
        program: str,
        actor: Actor,
        environment: Mapping[str, str],
        runtime: str | None = None,
    ) -> None:
        self.name = name
        self.program = program
        self.runtime = runtime
        self.actor = actor
        self.environment = dict(environment)
        self._images: set[str] = set()

    def by(self, actor: Actor) -> Engine:
        """Return the same engine for another actor."""
        other = Engine(self.name, self.program, actor, self.environment, self.runtime)
        other._images = self._images
        return other

    def call(self, *argv: str, stdin: bytes = b"") -> Result:
        """Call the engine as the actor would, from outside coop."""
        given = {**plain_environment(self.actor.base), **self.environment}
        return run([*self.actor.prefix, self.program, *argv], stdin, self.actor.base, given)

    def output(self, *argv: str, stdin: bytes = b"") -> str:
        """Call the engine, which has to succeed; return its standard output without the last newline."""
        result = self.call(*argv, stdin=stdin)
        assert result.status == 0, (self.name, argv, result)
        return result.out.rstrip("\n")

    def run(self, image: str, *argv: str, options: tuple[str, ...] = ()) -> Result:
        """Run a command in a container without a network, with the engine's own defaults otherwise."""
        runtime = ("--runtime", self.runtime) if self.runtime else ()
        return self.call("run", "--rm", "--network", "none", *runtime, *options, self.image(image), *argv)

    def image(self, name: str) -> str:
        """Return the reference of one of ``images.IMAGES``, or of ``debian``; made when first asked for."""
        reference = f"localhost/coop-test/{name}:latest"
        if name not in self._images:
            if name == "debian":
                self.output("import", str(images.debian(self._shared())), reference)
            else:
                changes = [word for line in images.IMAGES[name] for word in ("--change", line)]
                self.output("import", *changes, "-", reference, stdin=images.root_file_system(name))
            self._images.add(name)
        return reference

    def push(self, registry: Registry, name: str) -> str:
        """Put an image into a registry, and forget it here; return its reference there."""
        reference = f"{registry.address}/coop-test/{name}:latest"
        self.output("tag", self.image(name), reference)
        self.output("push", reference)
        self.output("rmi", reference)
        return reference

    def containers(self, *options: str) -> list[str]:
        """Return the ids of all containers, running or not; ``options`` are more of the engine's."""
        return self.output("ps", "--all", "--quiet", "--no-trunc", *options).split()

    def clean(self) -> None:
        """Remove every container and every named volume that a test has left.

        Podman counts what an interrupted build has left as another program's.
        """
        of_builds = ("--external",) if self.name.startswith("podman") else ()
        if left := self.containers(*of_builds):
            self.call("rm", "--force", "--volumes", *left)
        if volumes := self.output("volume", "ls", "--quiet").split():
            self.call("volume", "rm", "--force", *volumes)

    def _shared(self) -> Path:
        return self.actor.base.parent


class Engines:
    """The engines of a test run; each is started when first asked for, and ended with the run."""

    def __init__(self, workshop: Workshop) -> None:
        sweep()
        self._base = workshop.base / "e"
        self._base.mkdir(0o755)
        self._base.chmod(0o755)
        self._user = self._member = workshop.actor("user")
        self._root = workshop.actor("root") if os.geteuid() == 0 else None
        self._made: dict[str, Engine | UnusableError] = {}
        self._daemons: dict[str, Daemon] = {}
        self._cell: Cell | None = None
        self._registry: Registry | None = None
        if self._root is not None:
            self._cell = Cell(self._user.uid, self._user.gid)
            self._member = Inhabitant(self._user, self._cell, self._cell.docker_gid)
            self._user = Inhabitant(self._user, self._cell)
            self._root = Inhabitant(self._root, self._cell)
        # The cell has a loopback interface of its own.
        self._address = f"127.0.0.1:{5000 if self._cell else free_port()}"

    @property
    def user(self) -> Actor:
        """Return an unprivileged user in the cell, who is in no group of an engine's."""
        return self._user

    @property
    def root(self) -> Actor | None:
        """Root in the cell, who may use every engine; None when the tests have no root."""
        return self._root

    def get(self, name: str) -> Engine:
        """Return an engine by name; raises UnusableError when this machine can't have it."""
        if name not in self._made:
            try:
                self._made[name] = self._make(name)
            except UnusableError as error:
                self._made[name] = error
        made = self._made[name]
        if isinstance(made, UnusableError):
            raise UnusableError(f"{name}: {made}")
        return made

    def registry(self) -> Registry:
        """Return the registry of the test run."""
        if self._registry is None:
            self._registry = Registry(self._base, self._cell, self._address)
        return self._registry

    def close(self) -> None:
        """End everything."""
        for daemon in (*self._daemons.values(), self._registry):
            if daemon is not None:
                daemon.close()
        end_of(os.getpid())
        if self._cell is not None:
            self._cell.close()
        discard(self._base)

    def _make(self, name: str) -> Engine:
        images.busybox()
        engine, _, variant = name.replace("+", "-").partition("-")
        if engine == "docker":
            return self._docker(name, variant)
        if shutil.which("podman") is None:
            raise UnusableError("podman is not installed")
        actor = self._user if variant else self._root
        if actor is None:
            raise UnusableError("it needs root")
        made = Engine(name, "podman", actor, self._podman_environment(actor))
        tried = made.call("run", "--rm", "--network", "none", made.image("busybox"), "true")
        if tried.status:
            raise UnusableError(tried.err.strip())
        return made

    def _docker(self, name: str, variant: str) -> Engine:
        if variant == "runsc" and shutil.which("runsc") is None:
            raise UnusableError("runsc is not installed")
        mode = "" if variant == "runsc" else variant
        if mode not in self._daemons:
            self._daemons[mode] = Daemon(self._base, self._user, self._cell, mode)
        environment = {"DOCKER_HOST": f"unix://{self._daemons[mode].socket}"}
        runtime = "runsc" if variant == "runsc" else None
        return Engine(
            name, "docker", self._member if mode != "rootless" else self._user, environment, runtime
        )

    def _podman_environment(self, actor: Actor) -> dict[str, str]:
        """Write Podman's configuration for a store of its own; return the variables that name it."""
        # Podman's sockets lie deep below; a longer path makes each run wait 20 s for its end.
        directory = self._base / ("p" if actor.uid == 0 else "r")
        for part in ("store", "state", "tmp", "run"):
            (directory / part).mkdir(parents=True, mode=0o700)
        store, state = json.dumps(str(directory / "store")), json.dumps(str(directory / "state"))
        files = {
            "storage.conf": (
                f'[storage]\ndriver = "overlay"\nrunroot = {state}\n'
                f"graphroot = {store}\nrootless_storage_path = {store}\n"
            ),
            "containers.conf": (
                f"[containers]\ndefault_ulimits = {json.dumps(_limits() if actor.uid == 0 else [])}\n"
                f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
                f"runtime = {json.dumps(self._runtime())}\ntmp_dir = {json.dumps(str(directory / 'tmp'))}\n"
            ),
            "registries.conf": (
                "unqualified-search-registries = []\n"
                f"[[registry]]\nlocation = {json.dumps(self._address)}\ninsecure = true\n"
            ),
        }
        for file, text in files.items():
            (directory / file).write_text(text)
        for path in (directory, *directory.rglob("*")):
            actor.own(path)
        if self._cell is not None and actor.uid == 0:  # rootless overlays need a kernel of 6.6 for that
            self._cell.use_memory(directory / "store")
        return {
            "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
            "CONTAINERS_CONF": str(directory / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(directory / "registries.conf"),
            "XDG_RUNTIME_DIR": str(directory / "run"),
        }

    def _runtime(self) -> str:
        """Return an OCI runtime that works here; crun refuses a v2 mount beside v1."""
        hybrid = self._cell is None and os.path.isdir("/sys/fs/cgroup/unified")
        return "crun" if shutil.which("crun") and not hybrid else "runc"


def _limits() -> list[str]:
    """Return the limits that root has: Podman would raise them, which root may lack the right to do.

    Podman itself goes down to the sysctls before it starts anything.
    """
    found = []
    for name, limit, file in (
        ("nofile", resource.RLIMIT_NOFILE, "/proc/sys/fs/nr_open"),
        ("nproc", resource.RLIMIT_NPROC, "/proc/sys/kernel/pid_max"),
    ):
        most, hard = int(Path(file).read_text()), resource.getrlimit(limit)[1]
        value = most if hard == resource.RLIM_INFINITY else min(hard, most)
        found.append(f"{name}={value}:{value}")
    return found
