"""Landlock: the second fence round the files, below the mounts.

Rules follow the kernel's abstraction level: what an older kernel does not know is
left out of the rule set and reported as missing. linux/landlock.h,
Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import fcntl
import os
import stat
from _struct import pack

from coopfile.native import syscalls

_CREATE_RULESET, _ADD_RULE = 444, 445

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1 << 0, 1 << 1

READ = EXECUTE | READ_FILE | READ_DIR
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_BASE_RIGHTS = (1 << 13) - 1  # ABI 1: EXECUTE to MAKE_SYM

# What an ABI lacks, in the words of `coop status`.
MISSING = (
    (2, "renames and links between directories (ABI 2, Linux 5.19)"),
    (3, "truncation (ABI 3, Linux 6.2)"),
    (5, "device ioctls (ABI 5, Linux 6.10)"),
    (6, "signals and abstract sockets of the host (ABI 6, Linux 6.12)"),
)


def abi() -> int:
    """Return the kernel's Landlock ABI; 0 when it has none or it is switched off."""
    try:
        return syscalls.call("landlock", _CREATE_RULESET, None, 0, 1)  # LANDLOCK_CREATE_RULESET_VERSION
    except OSError:
        return 0


def handled_rights(version: int) -> int:
    """Return every file right that this ABI can restrict."""
    rights = _BASE_RIGHTS
    for since, right in ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)):
        if version >= since:
            rights |= right
    return rights


class Fence:
    """A rule set being built: everything is denied but what is allowed here."""

    def __init__(self, version: int) -> None:
        self.rights = handled_rights(version)
        scoped = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS if version >= 6 else 0
        attr = pack("QQQ", self.rights, 0, scoped)  # struct landlock_ruleset_attr: files, network, scopes
        # The structure grew with the ABI; a kernel refuses trailing fields that it does not know only
        # when they are not zero (copy_struct_from_user), so the full size is always right.
        self.descriptor = syscalls.call("landlock_create_ruleset", _CREATE_RULESET, attr, len(attr), 0)

    def allow(self, descriptor: int, rights: int) -> None:
        """Allow ``rights`` on what the descriptor stands for and everything beneath it."""
        rights &= self.rights
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        if not rights:
            return
        attr = pack("=Qi", rights, descriptor)  # struct landlock_path_beneath_attr, packed
        syscalls.call("landlock_add_rule", _ADD_RULE, self.descriptor, 1, attr, 0)

    def allow_path(self, path: str, rights: int) -> None:
        """Allow ``rights`` beneath a path; a path that does not exist needs no rule."""
        try:
            descriptor = os.open(path, syscalls.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        self.allow(descriptor, rights)
        os.close(descriptor)

    def allow_stream(self, descriptor: int) -> None:
        """Let ``/dev/stdout`` and its like be opened again, no wider than the stream is open.

        Pipes and sockets have no path and need no rule; the kernel refuses one.
        """
        try:
            mode = os.fstat(descriptor).st_mode
        except OSError:
            return  # the caller closed it
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
            return
        access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        rights = IOCTL_DEV
        if access in (os.O_RDONLY, os.O_RDWR):
            rights |= READ_FILE
        if access in (os.O_WRONLY, os.O_RDWR):
            rights |= WRITE_FILE | TRUNCATE
        self.allow(descriptor, rights)

    def enforce(self) -> None:
        """Restrict this process and all that come of it. no_new_privs must be set."""
        syscalls.restrict_self(self.descriptor)
