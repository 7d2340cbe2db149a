"""``coop init``: write a starter Coopfile that fits the project; with one, get its root file system ready."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence

from coopfile import data, wholefile
from coopfile.cli import output
from coopfile.cli.lock import add_frozen
from coopfile.errors import CoopError
from coopfile.record import Record
from coopfile.system import LINUX, system

SUMMARY = "write a commented starter Coopfile, or where there is one get its root file system ready"
EPILOG = """examples:
  coop init                look at the project and write ./Coopfile
  coop init                with a Coopfile that has base.image: lock it, fetch it, build on it
  coop init --frozen       the same, but only as Coopfile.lock says
  coop init --print        show it instead of writing it
  coop init -C ../other    for a project elsewhere
"""

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


class Kind(Record):
    """A kind of project: the files that show it, and what its tools need.

    ``read`` and ``write`` are places below the home where its tools and caches are
    kept when they are not under /usr, as paths that begin with ``~/``; ``bin`` are
    the directories of programs among them. ``variables`` are name, value, reason.
    ``memory`` and ``tmp`` are what large builds may need, in GiB.
    """

    title: str
    evidence: tuple[str, ...]
    protect: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    bin: tuple[str, ...] = ()
    variables: tuple[tuple[str, str, str], ...] = ()
    memory: int = 2
    tmp: int = 1
    host_path: bool = False


KINDS = (
    Kind(
        "Python",
        ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile", "tox.ini"),
        protect=(".venv", "venv"),
        read=("~/.pyenv", "~/.local/share/uv/python", "~/.local/bin"),
        write=("~/.cache/pip", "~/.cache/uv"),
        bin=("~/.pyenv/shims", "~/.pyenv/bin", "~/.local/bin"),
        host_path=True,
    ),
    Kind(
        "Node",
        ("package.json",),
        read=("~/.nvm", "~/.volta", "~/.local/share/fnm"),
        write=("~/.npm", "~/.cache/yarn", "~/.local/share/pnpm"),
        bin=("~/.volta/bin",),
        memory=4,
    ),
    Kind(
        "Rust",
        ("Cargo.toml",),
        read=("~/.cargo/bin", "~/.rustup"),
        write=("~/.cargo/registry", "~/.cargo/git"),
        bin=("~/.cargo/bin",),
        variables=(("CARGO_NET_OFFLINE", "true", "Without a network cargo should not try to reach one."),),
        memory=4,
        tmp=2,
    ),
    Kind(
        "Go",
        ("go.mod", "go.work"),
        read=("~/go/bin", "~/sdk"),
        write=("~/go/pkg/mod", "~/.cache/go-build"),
        bin=("~/go/bin",),
        variables=(
            ("GOPROXY", "off", "Without a network go should not try to reach one."),
            ("GOTOOLCHAIN", "local", "Nor fetch another toolchain."),
        ),
        memory=4,
        tmp=2,
    ),
)


class Found(Record):
    """What was found: kinds of project, the files that told, and which candidates exist."""

    kinds: tuple[Kind, ...]
    evidence: tuple[str, ...]
    protect: tuple[str, ...]
    read: tuple[str, ...]
    write: tuple[str, ...]
    bin: tuple[str, ...]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("--force", action="store_true", help="replace a Coopfile that is there already")
    parser.add_argument(
        "--print", action="store_true", dest="show", help="print the file instead of writing it"
    )
    add_frozen(parser)


def main(options: argparse.Namespace) -> int:
    """Look at the project and write, or print, its starter Coopfile."""
    directory = os.path.abspath(options.directory or ".")
    if not os.path.isdir(directory):
        raise CoopError(f"{output.safe(directory)} is not a directory")
    target = os.path.join(directory, options.file or "Coopfile")
    if options.frozen or (os.path.lexists(target) and not (options.force or options.show)):
        if system() != LINUX:
            raise CoopError(
                f"{output.safe(target)} is there already, and what it asks for is built on Linux alone",
                "coop render dockerfile prints how; coop init --force writes a new Coopfile",
            )
        from coopfile.cli.rootfs import prepare

        return prepare(options, frozen=options.frozen)
    found = look(directory, os.path.expanduser("~"))
    text = render(found)
    if options.show:
        output.emit(text)
        return 0
    write(target, text, options.force)
    if options.json:
        kinds = [kind.title for kind in found.kinds]
        output.emit_json({"written": target, "kinds": kinds, "evidence": list(found.evidence)})
    elif not options.quiet:
        kinds_text = " and ".join(kind.title for kind in found.kinds) or "any project"
        because = f" (found {', '.join(found.evidence)})" if found.evidence else ""
        output.emit(f"wrote {output.safe(os.path.relpath(target))} for {kinds_text}{because}")
        output.emit("next: coop plan shows what it comes to, coop run -- CMD runs a command under it")
    return 0


def look(directory: str, home: str) -> Found:
    """Find out what kind of project ``directory`` holds and which tools ``home`` has for it."""
    kinds = []
    evidence: list[str] = []
    for kind in KINDS:
        files = [name for name in kind.evidence if os.path.isfile(os.path.join(directory, name))]
        if files:
            kinds.append(kind)
            evidence += files

    def present(root: str, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if os.path.isdir(os.path.join(root, name.removeprefix("~/"))))

    return Found(
        kinds=tuple(kinds),
        evidence=tuple(evidence),
        protect=tuple(path for kind in kinds for path in present(directory, kind.protect)),
        read=tuple(path for kind in kinds for path in present(home, kind.read)),
        write=tuple(path for kind in kinds for path in present(home, kind.write)),
        bin=tuple(path for kind in kinds for path in present(home, kind.bin)),
    )


def render(found: Found) -> str:
    """Return the text of the starter Coopfile for what was found."""
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # TOML, not HTML; values go through the toml filter
    )
    environment.filters["toml"] = _toml
    template = environment.from_string(data.text("templates/Coopfile.j2"))
    return template.render(
        schema=json.loads(data.text("schema/coopfile.schema.json"))["$id"],
        kinds=found.kinds,
        evidence=found.evidence,
        host_path=any(kind.host_path for kind in found.kinds),
        protect=found.protect,
        read=found.read,
        write=found.write,
        # session.user is root by default, so the sandbox's home is /root.
        path=":".join([*(name.replace("~", "/root", 1) for name in found.bin), _SYSTEM_PATH])
        if found.bin
        else "",
        variables=[variable for kind in found.kinds for variable in kind.variables],
        memory=max([0, *(kind.memory for kind in found.kinds)]),
        tmp=max([0, *(kind.tmp for kind in found.kinds)]),
    )


def _toml(value: str | Sequence[str]) -> str:
    # A JSON string or array of strings is the same in TOML.
    return json.dumps(value if isinstance(value, str) else list(value), ensure_ascii=False)


def write(target: str, text: str, force: bool) -> None:
    """Write ``text`` as a whole or not at all; only ``force`` replaces what is there."""
    shown = output.safe(os.path.relpath(target))
    if not force and os.path.lexists(target):
        raise CoopError(
            f"{shown} is there already",
            "coop init --force replaces it; coop init --print shows what it would write",
        )
    try:
        wholefile.write(target, text.encode())
    except OSError as error:
        raise CoopError(f"cannot write {shown}: {error.strerror}") from None
