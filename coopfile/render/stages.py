"""What is built on the base image, as commands of its shell, in the order of the build.

A stage is a part of the plan that changes as a whole: the packages of one manager,
the set-up commands, the agent. What changes least comes first, so that a later stage
can be built on what is kept of the earlier ones.
"""

from __future__ import annotations

from shlex import join

from coopfile.plan.model import Plan
from coopfile.record import Record

# Where a build that keeps downloads has a directory for those of each manager, outside the layer.
CACHES = "/run/coop"


class Stage(Record):
    """Commands for ``/bin/sh -c``, run one after the other as root in ``/``; ``key`` is the plan's.

    ``cache`` is the name of the directory below ``CACHES`` that they download to, None without one.
    """

    key: str
    commands: tuple[str, ...]
    cache: str | None = None


class _Recipe(Record):
    """How packages are installed: the command that takes them, what comes before, what removes leftovers."""

    install: str
    before: str = ""
    after: str = ""


class _Manager(Record):
    """A package manager: ``present`` succeeds in an image that has it, ``absent`` is the remedy otherwise.

    ``plain`` leaves nothing of what was downloaded, ``caching`` keeps it below ``CACHES``.
    """

    present: str
    absent: str
    plain: _Recipe
    caching: _Recipe


_APT = "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends"
_APT_LISTS = "apt-get update"
_APT_CLEAN = "apt-get clean && rm -rf /var/lib/apt/lists/*"
_DNF = "dnf install -y --setopt=install_weak_deps=False"
_DNF_CLEAN = "dnf clean all && rm -rf /var/cache/dnf /var/cache/libdnf5"
# Variables, for a pip that does not know an option refuses it but ignores its variable:
# only those that refuse to touch a distribution's Python (PEP 668) know the first.
_PIP = "PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install"
_PIP_OPTIONS = "--no-input --disable-pip-version-check"
# Into /usr/local: it is on the path of every sandbox, and nothing of the home is.
_NPM = "npm install --global --prefix=/usr/local --no-audit --no-fund --no-update-notifier"
_CARGO = "cargo install --root=/usr/local --locked"
_CARGO_HOME = '"${CARGO_HOME:-$HOME/.cargo}'
_CARGO_CLEAN = f'rm -rf {_CARGO_HOME}/registry" {_CARGO_HOME}/git"'

# System packages first: the others need compilers, certificates and interpreters of theirs.
_MANAGERS = {
    "apt": _Manager(
        "command -v apt-get >/dev/null",
        "apt-get is not in this image: use an image of Debian or Ubuntu, or another manager",
        _Recipe(_APT, _APT_LISTS, _APT_CLEAN),
        # What apt-get clean and the hooks of Debian's images empty is the layer's own directory.
        _Recipe(
            f"{_APT} -o Dir::Cache::archives={CACHES}/apt -o APT::Keep-Downloaded-Packages=true",
            _APT_LISTS,
            _APT_CLEAN,
        ),
    ),
    "apk": _Manager(
        "command -v apk >/dev/null",
        "apk is not in this image: use an image of Alpine, or another manager",
        _Recipe("apk add --no-cache"),
        _Recipe(f"apk add --update-cache --cache-dir {CACHES}/apk"),
    ),
    "dnf": _Manager(
        "command -v dnf >/dev/null",
        "dnf is not in this image: use an image of Fedora or its kin, or another manager",
        _Recipe(_DNF, after=_DNF_CLEAN),
        # dnf 5 has the second name for root.
        _Recipe(
            f"{_DNF} --setopt=keepcache=True --setopt=cachedir={CACHES}/dnf"
            f" --setopt=system_cachedir={CACHES}/dnf",
            after=_DNF_CLEAN,
        ),
    ),
    "pip": _Manager(
        "python3 -m pip --version >/dev/null 2>&1",
        "pip is not in this image: add python3-pip (py3-pip for apk) to packages.apt, apk or dnf",
        _Recipe(f"{_PIP} --no-cache-dir {_PIP_OPTIONS}"),
        _Recipe(f"PIP_CACHE_DIR={CACHES}/pip {_PIP} {_PIP_OPTIONS}"),
    ),
    "npm": _Manager(
        "command -v npm >/dev/null",
        "npm is not in this image: add npm to packages.apt, apk or dnf",
        _Recipe(_NPM, after="npm cache clean --force"),
        _Recipe(f"{_NPM} --cache={CACHES}/npm"),
    ),
    "cargo": _Manager(
        "command -v cargo >/dev/null",
        "cargo is not in this image: add cargo to packages.apt, apk or dnf",
        _Recipe(_CARGO, after=_CARGO_CLEAN),
        # Its home holds settings too, and is not to be another: links lead from there.
        _Recipe(
            _CARGO,
            f'mkdir -p {_CARGO_HOME}" {CACHES}/cargo/registry {CACHES}/cargo/git'
            f' && ln -sfn {CACHES}/cargo/registry {_CARGO_HOME}/registry"'
            f' && ln -sfn {CACHES}/cargo/git {_CARGO_HOME}/git"',
            _CARGO_CLEAN,
        ),
    ),
}


def stages(plan: Plan, *, caching: bool = False) -> tuple[Stage, ...]:
    """Return the stages of a plan that are not empty, in the order in which they are built.

    With ``caching`` downloads are kept below ``CACHES``, else nothing is left of them.
    """
    found = [
        Stage(
            f"packages.{name}",
            (_install(name, manager, packages, caching=caching),),
            name if caching else None,
        )
        for name, manager in _MANAGERS.items()
        if (packages := getattr(plan.packages, name))
    ]
    if plan.setup.run:
        found.append(Stage("setup.run", plan.setup.run))
    if plan.agent.install is not None:
        found.append(Stage("agent.install", (plan.agent.install,)))
    return tuple(found)


def _install(name: str, manager: _Manager, packages: tuple[str, ...], *, caching: bool) -> str:
    # The language's names of packages begin with no dash: none is taken for an option.
    refusal = join(["echo", f"coop: packages.{name}: {manager.absent}"])
    check = f"{manager.present} || {{ {refusal} >&2; exit 127; }}"
    recipe = manager.caching if caching else manager.plain
    work = (recipe.before, f"{recipe.install} {join(packages)}", recipe.after)
    return check + "; " + " && ".join(filter(None, work))
