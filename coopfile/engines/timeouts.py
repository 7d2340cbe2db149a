"""How long engines may take, in seconds: every call to one has a limit."""

from __future__ import annotations

DETECT = 1.0  # for all that are asked at once
DETECT_ALONE = 5.0  # for the only one asked
DETECT_BUSY = 10.0  # for one that is still at work then: it is the machine that is slow
QUICK = 10.0  # for what needs no work of the engine's but a busy machine
IMPORT = 60.0
PULL = 1800.0
BUILD = 7200.0  # a build compiles what it is told to
CREATE = 120.0  # a busy disk
STARTS = 60.0  # for a start, and from asking to end to a look whether the engine still answers
CLEANS_UP = 5.0  # for a pull or a build to end its own processes when it is asked to end
SETTLES = 5.0  # from the end of the streams to that of the container
REMOVAL = 60.0  # an engine kills, unmounts and deletes
REMOVAL_GOES_ON = 600.0  # for which a removal is tried again in the background
HOLDS_STARTS = 10.0  # seconds that a run may keep others from starting while its mounts are made
