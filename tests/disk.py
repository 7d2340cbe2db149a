"""A small file system where only one project's coop sees it, for tests of a full disk. It takes root."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.sandboxes import Actor


class Disk:
    """A small file system of an actor's in a mount namespace of its own, where a project's coop runs."""

    def __init__(self, actor: Actor, path: Path) -> None:
        self._path = path
        options = f"size=1m,mode=700,uid={actor.uid},gid={actor.gid}"
        script = (
            f"mount --make-rprivate / && mount -t tmpfs -o {options} none {path} && echo ready && exec cat"
        )
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "setpriv", "--pdeathsig", "KILL", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None and self._holder.stdout.readline() == b"ready\n"
        self.enter = ("nsenter", f"--target={self._holder.pid}", "--mount")
        self.seen = Path(f"/proc/{self._holder.pid}/root{path}")
        """Where it is for the tests."""

    def resize(self, size: str) -> None:
        """Give it another size, as mount(8) takes it."""
        subprocess.run([*self.enter, "mount", "-o", f"remount,size={size}", str(self._path)], check=True)

    def close(self) -> None:
        """End the namespace, and the file system with it."""
        self._holder.communicate()
