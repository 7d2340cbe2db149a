"""Fixtures of the attacks: real sandboxes, as root and as an unprivileged user."""

from tests.builds import build
from tests.imaged import imaged
from tests.netlab import connected, lab, way
from tests.proxylab import proxied, secure
from tests.sandboxes import actor, project, workshop
from tests.sessionlab import sessions

__all__ = [
    "actor",
    "build",
    "connected",
    "imaged",
    "lab",
    "project",
    "proxied",
    "secure",
    "sessions",
    "way",
    "workshop",
]
