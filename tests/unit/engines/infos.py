"""What ``docker info`` and ``podman info`` printed on real machines, less what nobody reads."""

from __future__ import annotations

import json
from typing import Any

# Docker 20.10.24 of Debian 12, rootful, control groups of version 1, asked by a newer command line.
DOCKER: dict[str, Any] = json.loads(
    """{"ID":"","Containers":0,"Driver":"overlay2","MemoryLimit":true,"SwapLimit":true,"CpuCfsPeriod":true,
    "CpuCfsQuota":true,"PidsLimit":true,"CgroupDriver":"cgroupfs","CgroupVersion":"1","OSType":"linux",
    "SecurityOptions":["name=seccomp,profile=default"],"Runtimes":{"io.containerd.runc.v2":{"path":"runc"},
    "io.containerd.runtime.v1.linux":{"path":"runc"},"runc":{"path":"runc"},
    "runsc":{"path":"/usr/bin/runsc","runtimeArgs":["--network=none"]}},"DefaultRuntime":"runc",
    "InitBinary":"docker-init","InitCommit":{"ID":""},"ServerVersion":"20.10.24+dfsg1"}"""
)
# The same with --userns-remap, and rootless.
REMAPPED = {**DOCKER, "SecurityOptions": ["name=seccomp,profile=default", "name=userns"]}
ROOTLESS = {
    **DOCKER,
    "SecurityOptions": ["name=seccomp,profile=default", "name=rootless"],
    "CgroupDriver": "none",
    "MemoryLimit": False,
    "SwapLimit": False,
    "CpuCfsPeriod": False,
    "CpuCfsQuota": False,
    "PidsLimit": False,
}
# Fields as the Engine API from 1.41 and newer names them, with SELinux.
NEWER = {
    **{key: value for key, value in DOCKER.items() if not key.startswith("CpuCfs")},
    "CPUCfsPeriod": True,
    "CPUCfsQuota": True,
    "CgroupVersion": "2",
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns", "name=selinux"],
    "Runtimes": {"io.containerd.runc.v2": {"path": "runc", "status": {}}, "runc": {"path": "runc"}},
    "ServerVersion": "28.2.2",
}
# Daemon down: command line 20.10 (exit status 0) and 28.2 (exit status 1).
DOWN_OLD = {"ServerErrors": ["Cannot connect to the Docker daemon at unix:///x."], "ClientInfo": {}}
DOWN_NEW = {"ID": "", "ServerVersion": "", "Runtimes": None, "SecurityOptions": None, "OSType": ""}

# Podman 4.3.1 of Debian 12 on control groups of version 1.
PODMAN: dict[str, Any] = json.loads(
    """{"host":{"arch":"amd64","cgroupManager":"cgroupfs","cgroupVersion":"v1","cgroupControllers":[],
    "networkBackend":"netavark","ociRuntime":{"name":"crun","path":"/usr/bin/crun"},
    "security":{"apparmorEnabled":false,"capabilities":"CAP_CHOWN","rootless":false,"seccompEnabled":true,
    "seccompProfilePath":"/usr/share/containers/seccomp.json","selinuxEnabled":false}},
    "version":{"APIVersion":"4.3.1","Version":"4.3.1","OsArch":"linux/amd64"}}"""
)


def podman_rootless(version: str = "v1", *controllers: str) -> dict[str, Any]:
    """Return Podman's answer to an ordinary user with control groups of a version, and what is delegated."""
    host = PODMAN["host"]
    return {
        **PODMAN,
        "host": {
            **host,
            "cgroupVersion": version,
            "cgroupControllers": list(controllers),
            "security": {**host["security"], "rootless": True},
        },
    }


def program(info: object, *, status: int = 0, said: str = "", seconds: float = 0) -> str:
    """Return a shell script that stands for an engine's command line: it answers ``info`` with some JSON."""
    text = json.dumps(info) if not isinstance(info, str) else info
    sleep = f"sleep {seconds}\n" if seconds else ""
    return f"#!/bin/sh\n{sleep}cat <<'END'\n{text}\nEND\necho '{said}' >&2\nexit {status}\n"
