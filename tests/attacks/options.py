"""What several attacks use: options of ``coop run``, and how long a file has to be as it is to be cached."""

from __future__ import annotations

SETTLED = 0.1  # seconds: a plan of files that have just been changed is not cached


def hide(*globs: str) -> tuple[str, ...]:
    """Return the options that hide paths of the workspace."""
    return ("--set", "files.hide=[" + ",".join(f'"{glob}"' for glob in globs) + "]")


def give(key: str, *paths: object) -> tuple[str, ...]:
    """Return the options that give the sandbox more of the host: files.read or files.write."""
    return ("--set", f"files.{key}=[" + ",".join(f'"{path}"' for path in paths) + "]")
