"""Which container engines this machine has, what they can do, and why others cannot be used.

All are asked at once and get one second together: a daemon that hangs costs no more.
An engine that is the only one asked for gets longer, since there is no other to turn to.
"""

from __future__ import annotations

import json
import os
import shutil
import time

from coopfile.engines.call import Call, EngineError, shown
from coopfile.engines.timeouts import DETECT, DETECT_ALONE, DETECT_BUSY
from coopfile.record import Record
from coopfile.render.facts import Engine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

NAMES = ("docker", "podman")
NAMESPACE, USERSPACE_KERNEL, VM = "namespace", "userspace-kernel", "vm"
ISOLATION = (NAMESPACE, USERSPACE_KERNEL, VM)  # the weakest first

# Runtimes by the names that their installers register them with.
_RUNTIMES = {"runsc": USERSPACE_KERNEL, "krun": VM, "io.containerd.runsc.v1": USERSPACE_KERNEL}
_KNOWN = ("crun", "kata-runtime", "krun", "runc", "runsc", "youki")  # what Podman finds along PATH
_VM_PREFIXES = ("kata", "io.containerd.kata")


class _DownError(Exception):
    """An engine's command line answers, but the engine does not."""


class Found(Record):
    """What came of looking for one engine: the engine, or why it cannot be used and what helps."""

    name: str
    engine: Engine | None = None
    why: str = ""
    remedy: str | None = None


def isolation(runtime: str | None) -> str:
    """Return the isolation that an OCI runtime gives; what is not known is taken for the weakest."""
    if runtime is None:
        return NAMESPACE
    if runtime.startswith(_VM_PREFIXES):
        return VM
    return _RUNTIMES.get(runtime, NAMESPACE)


def detect(environment: Mapping[str, str], names: Sequence[str] = NAMES) -> tuple[Found, ...]:
    """Ask engines of this machine, by PATH and the engines' own variables, what they can do."""
    begin = time.monotonic()
    deadline = begin + (DETECT_ALONE if len(names) == 1 else DETECT)
    latest = begin + DETECT_BUSY
    calls: dict[str, Call | Found] = {}
    for name in names:
        program = shutil.which(name, path=environment.get("PATH", os.defpath))
        if program is None:
            calls[name] = Found(name, None, "not installed", f"install {name}")
            continue
        try:
            calls[name] = Call((program, "info", "--format", "{{json .}}"), environment)
        except EngineError as error:
            calls[name] = Found(name, None, error.message, f"is {program} the {name} command?")
    try:
        return tuple(
            call if isinstance(call, Found) else _result(name, call, (deadline, latest), environment)
            for name, call in calls.items()
        )
    except BaseException:
        for call in calls.values():
            if isinstance(call, Call):
                call.abandon()
        raise


def _result(name: str, call: Call, deadlines: tuple[float, float], environment: Mapping[str, str]) -> Found:
    """Return what an engine answers until the first deadline; the other one is for engines at work."""
    deadline, latest = deadlines
    now = time.monotonic()
    try:
        answer = call.answer(max(deadline - now, 0.001), patience=max(latest - max(now, deadline), 0.0))
    except EngineError:
        return Found(name, None, "did not answer in time", f"is it well? try: {call.argv[0]} info")
    if answer.status != 0:
        return Found(name, None, shown(answer.said), _REMEDIES[name])
    try:
        info = json.loads(answer.out)
        engine = _READERS[name](call.argv[0], info, environment)
    except _DownError as error:  # Docker's older command lines end with 0 all the same
        return Found(name, None, str(error), _REMEDIES[name])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Found(name, None, f"its `info` is not understood: {error}", "report this, with its version")
    return Found(name, engine)


def _docker(program: str, info: Any, environment: Mapping[str, str]) -> Engine:
    """Read `docker info`: fields of moby's api/types/system.Info."""
    errors = info.get("ServerErrors") or ()
    if errors or not info.get("ServerVersion"):
        raise _DownError(shown(" ".join(errors)))
    if info.get("OSType", "linux") != "linux":
        raise ValueError(f"it runs {info['OSType']} containers")
    # Security options are texts such as name=seccomp,profile=default.
    options = {part.partition(",")[0].partition("=")[2] for part in info.get("SecurityOptions") or ()}
    runtimes = tuple(sorted(name for name in info.get("Runtimes") or {} if not name.startswith("io.")))
    limits = {
        "memory": info.get("MemoryLimit"),
        "swap": info.get("SwapLimit"),
        "cpu": info.get("CpuCfsQuota") or info.get("CPUCfsQuota"),
        "pids": info.get("PidsLimit"),
    }
    return Engine(
        name="docker",
        program=program,
        version=str(info["ServerVersion"]),
        rootless="rootless" in options,
        remapped="userns" in options,
        selinux="selinux" in options,
        runtimes=runtimes,
        runtime=None,
        default_runtime=str(info.get("DefaultRuntime") or "runc"),
        limits=tuple(name for name, present in limits.items() if present),
        init=bool(info.get("InitBinary")),
        seccomp="seccomp" in options,
        proxies=_adds_proxies(environment),
    )


def _adds_proxies(environment: Mapping[str, str]) -> bool:
    """Tell whether Docker's command line adds the caller's proxies, credentials and all, to containers."""
    directory = environment.get("DOCKER_CONFIG") or f"{environment.get('HOME', '')}/.docker"
    try:
        with open(f"{directory}/config.json", encoding="utf-8") as file:
            return bool(json.load(file).get("proxies"))
    except (OSError, ValueError, AttributeError):
        return False


def _podman(program: str, info: Any, environment: Mapping[str, str]) -> Engine:
    """Read `podman info`: fields of libpod/define.Info, whose names differ in case between versions."""
    host = info["host"]
    security = host.get("security") or {}
    rootless = bool(security.get("rootless"))
    unified = host.get("cgroupVersion") == "v2"
    # Rootless: only what was delegated, and never with version 1. As root: all that there is.
    controllers = set(host.get("cgroupControllers") or ()) if rootless and unified else set()
    names = {"memory": "memory", "swap": "memory", "cpu": "cpu", "pids": "pids"}
    limits = tuple(name for name, needed in names.items() if not rootless or needed in controllers)
    own = str((host.get("ociRuntime") or {}).get("name") or "")
    return Engine(
        name="podman",
        program=program,
        version=str((info.get("version") or {}).get("Version") or ""),
        rootless=rootless,
        selinux=bool(security.get("selinuxEnabled")),
        seccomp=bool(security.get("seccompEnabled", True)),
        runtimes=(own, *(name for name in _KNOWN if name != own and _has(name, environment))),
        runtime=None,
        default_runtime=own,
        limits=limits,
        init=any(os.access(path, os.X_OK) for path in (*_TINY_INIT, *_PODMAN_INIT)),
        init_path=next((path for path in _TINY_INIT if os.access(path, os.X_OK)), None),
    )


def _has(program: str, environment: Mapping[str, str]) -> bool:
    return shutil.which(program, path=environment.get("PATH", os.defpath)) is not None


_READERS = {"docker": _docker, "podman": _podman}
_REMEDIES = {
    "docker": "start its daemon, or join the group that may use it: docker info",
    "podman": "podman info says more",
}
# Static, so that it runs in any image. Podman's own, catatonit, turns 126 and 127 into 1.
_TINY_INIT = ("/usr/bin/tini-static", "/usr/bin/docker-init", "/usr/libexec/docker/docker-init")
# Where podman looks for catatonit, containers.conf(5), init_path and helper_binaries_dir.
_PODMAN_INIT = (
    "/usr/libexec/podman/catatonit",
    "/usr/local/libexec/podman/catatonit",
    "/usr/local/lib/podman/catatonit",
    "/usr/lib/podman/catatonit",
    "/usr/bin/catatonit",
)
