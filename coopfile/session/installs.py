"""Whether commands of a session looked like installing something: a hint, for ``session.commit``.

What counts is what they have changed. On the path of ``coop exec``.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Broad: a wrong one costs a look at what has changed.
_PATTERNS = (
    "apk add",
    "apt install",
    "apt-get install",
    "brew install",
    "cargo install",
    "curl",
    "dnf install",
    "gem install",
    "go install",
    "make install",
    "npm i",
    "nvm install",
    "pip install",
    "pip3 install",
    "pipx install",
    "pnpm add",
    "pyenv install",
    "rustup",
    "uv tool",
    "wget",
    "yarn global add",
    "yum install",
)
_LONGEST = 65536  # characters of a command that are looked at
_MARK = "installs"


def looks_like_install(argv: Sequence[str]) -> bool:
    """Tell whether a command may install something."""
    text = " ".join(argv)[:_LONGEST].lower()
    return any(pattern in text for pattern in _PATTERNS)


def note(directory: str, argv: Sequence[str]) -> None:
    """Remember it of a session, if the command looks like that; not being able to is no error."""
    if looks_like_install(argv):
        flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.close(os.open(f"{directory}/{_MARK}", flags, 0o600))
        except OSError:
            pass


def were_noted(directory: str) -> bool:
    """Tell whether a command of a session looked like that."""
    return os.path.lexists(f"{directory}/{_MARK}")


def forget(directory: str) -> None:
    """Begin anew: the session has ended."""
    try:
        os.unlink(f"{directory}/{_MARK}")
    except OSError:
        pass
