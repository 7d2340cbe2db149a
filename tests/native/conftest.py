"""Fixtures of the tests on a real kernel."""

from tests.sandboxes import actor, project, workshop

__all__ = ["actor", "project", "workshop"]
