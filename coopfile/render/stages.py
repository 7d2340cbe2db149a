"""What is built on the base image, as commands of its shell, in the order of the build.

A stage is a part of the plan that changes as a whole: the packages of one manager,
the set-up commands, the agent. What changes least comes first, so that a later stage
can be built on what is kept of the earlier ones.
"""

from __future__ import annotations

from shlex import join

from coopfile.plan.model import Plan
from coopfile.record import Record


class Stage(Record):
    """Commands for ``/bin/sh -c``, run one after the other as root; ``key`` is the plan's."""

    key: str
    commands: tuple[str, ...]


class _Manager(Record):
    """How packages are installed: what has to be there, the command, and what it leaves to remove.

    ``present`` is a command that succeeds in an image that has the manager, ``absent``
    the remedy otherwise. ``before`` and ``after`` may be empty.
    """

    present: str
    absent: str
    before: str
    install: str
    after: str


# System packages first: the others need compilers, certificates and interpreters of theirs.
_MANAGERS = {
    "apt": _Manager(
        "command -v apt-get >/dev/null",
        "apt-get is not in this image: use an image of Debian or Ubuntu, or another manager",
        "apt-get update",
        "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends",
        "apt-get clean && rm -rf /var/lib/apt/lists/*",
    ),
    "apk": _Manager(
        "command -v apk >/dev/null",
        "apk is not in this image: use an image of Alpine, or another manager",
        "",
        "apk add --no-cache",
        "",
    ),
    "dnf": _Manager(
        "command -v dnf >/dev/null",
        "dnf is not in this image: use an image of Fedora or its kin, or another manager",
        "",
        "dnf install -y --setopt=install_weak_deps=False",
        "dnf clean all && rm -rf /var/cache/dnf /var/cache/libdnf5",
    ),
    # Variables, for a pip that does not know an option refuses it but ignores its variable:
    # only those that refuse to touch a distribution's Python (PEP 668) know the first.
    "pip": _Manager(
        "python3 -m pip --version >/dev/null 2>&1",
        "pip is not in this image: add python3-pip (py3-pip for apk) to packages.apt, apk or dnf",
        "",
        "PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore "
        "python3 -m pip install --no-cache-dir --no-input --disable-pip-version-check",
        "",
    ),
    # Into /usr/local: it is on the path of every sandbox, and nothing of the home is.
    "npm": _Manager(
        "command -v npm >/dev/null",
        "npm is not in this image: add npm to packages.apt, apk or dnf",
        "",
        "npm install --global --prefix=/usr/local --no-audit --no-fund --no-update-notifier",
        "npm cache clean --force",
    ),
    "cargo": _Manager(
        "command -v cargo >/dev/null",
        "cargo is not in this image: add cargo to packages.apt, apk or dnf",
        "",
        "cargo install --root=/usr/local --locked",
        'rm -rf "${CARGO_HOME:-$HOME/.cargo}/registry" "${CARGO_HOME:-$HOME/.cargo}/git"',
    ),
}


def stages(plan: Plan) -> tuple[Stage, ...]:
    """Return the stages of a plan that are not empty, in the order in which they are built."""
    found = [
        Stage(f"packages.{name}", (_install(name, manager, packages),))
        for name, manager in _MANAGERS.items()
        if (packages := getattr(plan.packages, name))
    ]
    if plan.setup.run:
        found.append(Stage("setup.run", plan.setup.run))
    if plan.agent.install is not None:
        found.append(Stage("agent.install", (plan.agent.install,)))
    return tuple(found)


def _install(name: str, manager: _Manager, packages: tuple[str, ...]) -> str:
    # The language's names of packages begin with no dash: none is taken for an option.
    refusal = join(["echo", f"coop: packages.{name}: {manager.absent}"])
    check = f"{manager.present} || {{ {refusal} >&2; exit 127; }}"
    work = (manager.before, f"{manager.install} {join(packages)}", manager.after)
    return check + "; " + " && ".join(filter(None, work))
