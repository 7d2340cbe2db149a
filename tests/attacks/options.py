"""Options of ``coop run`` that several attacks use."""

from __future__ import annotations


def hide(*globs: str) -> tuple[str, ...]:
    """Return the options that hide paths of the workspace."""
    return ("--set", "files.hide=[" + ",".join(f'"{glob}"' for glob in globs) + "]")


def give(key: str, *paths: object) -> tuple[str, ...]:
    """Return the options that give the sandbox more of the host: files.read or files.write."""
    return ("--set", f"files.{key}=[" + ",".join(f'"{path}"' for path in paths) + "]")
