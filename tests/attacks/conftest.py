"""Fixtures of the attacks: real sandboxes, as root and as an unprivileged user."""

from tests.sandboxes import actor, project, workshop

__all__ = ["actor", "project", "workshop"]
