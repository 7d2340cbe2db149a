"""What a build tells while it goes on."""

from __future__ import annotations

KEPT, BUILDING, BUILT = "kept", "building", "built"


class Progress:
    """Hears how a root file system is made, and says nothing.

    Front ends override what they show. Layers, stages and commands count from 1, sizes
    are in bytes. All but ``downloading`` and ``unpacking`` are called from one thread.
    """

    def note(self, text: str) -> None:
        """Hear a line for people, such as that another coop is waited for."""

    def downloading(self, layer: int, layers: int, done: int, size: int) -> None:
        """Hear how much of a layer of the image has come, from any thread."""

    def unpacking(self, layer: int, layers: int, done: int, size: int) -> None:
        """Hear how much of a layer's compressed bytes has been unpacked, from any thread."""

    def stage(self, key: str, number: int, stages: int, state: str) -> None:
        """Hear that a stage (``image``, ``packages.apt``, ...) is kept, being built, or built."""

    def command(self, stage: str, number: int, commands: int, command: str) -> None:
        """Hear which command of a stage begins."""

    def output(self, data: bytes) -> None:
        """Hear what the command prints, as it comes: untrusted bytes."""
