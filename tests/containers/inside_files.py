"""Probes that run in a sandbox: the workspace, the host's files, and what guards them."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess

from tests.containers.attempts import (
    FACTS,
    attempts,
    below,
    chmodded,
    each,
    filled,
    instead,
    linked,
    make,
    moved,
    pointed,
    probe,
    read,
    refused,
    replace,
    tried,
    write,
)

# --- the workspace


@probe
def workspace_is_read_and_written() -> str:
    """Files of the workspace can be read, changed, renamed, linked, removed and made executable."""
    assert read("plain.txt") == b"plain\n"
    write("plain.txt")
    os.mkdir("made")
    make("made/file")
    os.rename("made/file", "made/other")
    os.link("made/other", "made/second")
    os.symlink("other", "made/link")
    os.unlink("made/second")
    os.chmod("made/other", 0o755)
    with open("made/script", "w") as file:
        file.write("#!/bin/sh\nexit 3\n")
    os.chmod("made/script", 0o700)
    return "done" if subprocess.run(["./made/script"], check=False).returncode == 3 else "not executed"


@probe
def new_files() -> str:
    """What is made in the workspace belongs to the command, with the modes of umask 022."""
    make("new-file")
    os.close(os.open("new-file-0666", os.O_CREAT | os.O_WRONLY, 0o666))
    os.mkdir("new-directory")
    found = [os.stat(path) for path in ("new-file", "new-file-0666", "new-directory")]
    assert {(status.st_uid, status.st_gid) for status in found} == {(os.getuid(), os.getgid())}
    return " ".join(oct(stat.S_IMODE(status.st_mode)) for status in found)


@probe
def set_id_files() -> str:
    """A file cannot be made to run with its owner's rights."""
    make("set-id")
    return tried(os.chmod, "set-id", 0o6755)


@probe
def giving_files_away() -> str:
    """The command can give its files to nobody else."""
    make("gift")
    return tried(os.chown, "gift", 12345, 12345)


@probe
def sockets_and_pipes() -> str:
    """Unix sockets and named pipes work in the workspace and in /tmp."""
    for directory in (".", "/tmp"):
        server = socket.socket(socket.AF_UNIX)
        server.bind(f"{directory}/a-socket")
        server.listen()
        client = socket.socket(socket.AF_UNIX)
        client.connect(f"{directory}/a-socket")
        os.unlink(f"{directory}/a-socket")
        os.mkfifo(f"{directory}/a-pipe")
        os.unlink(f"{directory}/a-pipe")
    return "done"


# --- the host outside the workspace


@probe
def host_files() -> str:
    """The caller's home, keys, other projects and the host's own files are not there."""
    home = FACTS["home"]
    paths = [home, f"{home}/.ssh/id_ed25519", f"{home}/notes.txt", FACTS["other"], FACTS["workspace"]]
    paths += ["/etc/shadow", "/etc/ssh", "/etc/sudoers", "/var/lib", "/var/log", "/boot", "/srv", "/opt"]
    paths += ["/root/.bashrc", "/run/docker.sock", "/var/run/docker.sock", "/mnt", "/media"]
    return each(((path.replace(home, "~"), tried(os.lstat, path)) for path in paths), "absent")


@probe
def writing_outside() -> str:
    """Nothing can be made in the directories of the root file system."""
    paths = [
        "/",
        "/usr",
        "/usr/bin",
        "/usr/local/bin",
        "/bin",
        "/lib",
        "/etc",
        "/var",
        "/home",
        "/proc",
        "/dev",
    ]
    there = [path for path in paths if os.path.isdir(path)]
    return each(((path, "denied" if refused(make, f"{path}/x") else "done") for path in there), "denied")


@probe
def changing_tools() -> str:
    """The host's tools cannot be changed, nor can the files that say who is who."""
    paths = ["/usr/bin/env", "/usr/bin/python3", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname"]
    return each(((path, attempts(path, write, os.unlink, moved, chmodded)) for path in paths), "denied")


@probe
def root_directory() -> str:
    """The root has what programs need; the verdict names what is there besides."""
    usual = {"bin", "dev", "etc", "lib", "proc", "root", "run", "sbin", "tmp", "usr", "var", "workspace"}
    usual |= {"lib32", "lib64", "libx32", "nix", "home"}
    return "also: " + " ".join(sorted(set(os.listdir("/")) - usual))


@probe
def etc_directory() -> str:
    """/etc shows what native shows; the verdict names what is there besides."""
    return "also: " + " ".join(sorted(set(os.listdir("/etc")) - set(FACTS["etc"])))


# --- guards

_HIDDEN_FILES = (".env", "sub/.env.local")


@probe
def hidden_file() -> str:
    """A hidden file cannot be read, written, removed, replaced, renamed, given modes, or linked."""
    calls = (read, write, os.unlink, replace, moved, chmodded, linked)
    return each(((path, attempts(path, *calls)) for path in _HIDDEN_FILES), "denied")


@probe
def hidden_directory() -> str:
    """A hidden directory cannot be listed, entered, written, removed, renamed or given modes."""
    inner = f"secrets/{FACTS['inner']}"
    there = attempts(inner, read, write, os.unlink)
    new = tried(make, "secrets/new")
    itself = attempts("secrets", os.listdir, os.rmdir, moved, chmodded)
    return each((("below", there), ("new", new), ("itself", itself)), "denied")


@probe
def parent_of_hidden() -> str:
    """The directories above a hidden file cannot be renamed away, with it or without."""
    return attempts("sub", moved)


@probe
def protected_file() -> str:
    """A protected file can be read, and not be written, removed, replaced, renamed or given modes."""
    calls = (write, os.unlink, replace, moved, chmodded)
    for path in ("release.sh", "deep/er/kept", "Coopfile", ".git/config"):
        outcome = attempts(path, *calls)
        if outcome != "denied" or not read(path):
            return f"{path}: {outcome}"
    return "read-only"


@probe
def protected_directory() -> str:
    """What is in a protected directory cannot be changed, nor can it be replaced."""
    there = attempts("locked/inner", write, os.unlink, moved, chmodded)
    itself = attempts("locked", moved, chmodded)
    new = tried(make, "locked/new")
    return each((("below", there), ("itself", itself), ("new", new)), "denied")


@probe
def parents_of_protected() -> str:
    """The directories above something protected stay where they are, and are otherwise usable."""
    stay = each(((path, attempts(path, moved)) for path in ("deep/er", "deep", ".git")), "denied")
    write("deep/er/sibling")
    os.mkdir("deep/new")
    os.rename("deep/new", "deep/newer")
    return stay


@probe
def making_the_missing() -> str:
    """Protected paths that do not exist cannot be made, by any way."""
    paths = ("missing.cfg", "none/such/file", ".git/hooks", ".envrc")
    outcomes = []
    for path in paths:
        for way in (write, filled, pointed, replace, below, instead):
            outcomes.append((f"{path} {way.__name__}", "refused" if refused(way, path) else "done"))
    with contextlib.suppress(OSError):
        moved("none")
        outcomes.append(("none renamed", "done"))
    return each(outcomes, "refused")


@probe
def given_paths() -> str:
    """files.read gives files and directories to read, files.write to write; no guard is lost by that."""
    home = os.environ["HOME"]
    read(f"{home}/given-read/file")
    read(f"{home}/given-file")
    outcome = attempts(f"{home}/given-read/file", write, os.unlink, moved)
    outcome = each((("read", outcome), ("file", attempts(f"{home}/given-file", write, os.unlink))), "denied")
    write(f"{home}/given-write/file")
    os.mkdir(f"{home}/given-write/new")
    return outcome
