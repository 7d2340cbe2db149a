"""Fixtures of the attacks: real sandboxes, as root and as an unprivileged user."""

from tests.imaged import imaged
from tests.netlab import connected, lab, way
from tests.proxylab import proxied, secure
from tests.sandboxes import actor, project, workshop

__all__ = ["actor", "connected", "imaged", "lab", "project", "proxied", "secure", "way", "workshop"]
