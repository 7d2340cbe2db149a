"""What is read from the directories of an overlay is what the kernel shows: random changes, both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.sandboxes import Actor

# Runs as the actor, with a user namespace of its own for each try.
_PROGRAM = r"""
import json, os, random, shutil, stat, sys, traceback
library, directory, first, last = sys.argv[1:]
sys.path.insert(0, library)
from coopfile.native import namespaces, syscalls
from coopfile.rootfs import overlay
from coopfile.rootfs.commit import _Writer

NAMES = ["a", "b", "c", "d e", "f\n", os.fsdecode(b"\xff")]


def snapshot(root):
    found = {}
    for place, names, files in os.walk(root):
        for name in names + files:
            path = os.path.join(place, name)
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            content, extra = None, {}
            if kind == stat.S_IFREG:
                with open(path, "rb") as file:
                    content = file.read()
            elif kind == stat.S_IFLNK:
                content = os.readlink(path)
            if kind in (stat.S_IFREG, stat.S_IFDIR):
                extra = {x: os.getxattr(path, x) for x in os.listxattr(path) if x.startswith("user.c")}
            mode = None if kind == stat.S_IFLNK else stat.S_IMODE(status.st_mode)
            found[path[len(root):]] = (kind, mode, content, extra, status.st_mtime_ns)
    return found


def some_path(chance, root):
    path = root
    for _ in range(chance.randint(1, 4)):
        path += "/" + chance.choice(NAMES)
        if not os.path.isdir(path) or os.path.islink(path):
            break
    return path


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def change(chance, root):
    path = some_path(chance, root)
    there = os.path.lexists(path)
    is_file = os.path.isfile(path) and not os.path.islink(path)
    is_directory = os.path.isdir(path) and not os.path.islink(path)
    what = chance.randrange(14)
    if what < 3 and not there:
        with open(path, "w") as file:
            file.write("x" * chance.randrange(3))
        os.chmod(path, chance.choice([0, 0o600, 0o644, 0o755]))
    elif what < 6 and not there:
        os.mkdir(path)
        os.chmod(path, chance.choice([0o700, 0o755, 0o2755]))
    elif what == 6 and not there:
        chance.choice([lambda: os.symlink("t%d" % chance.randrange(2), path), lambda: os.mkfifo(path)])()
    elif what == 7 and is_file:
        with open(path, chance.choice(["a", "w", "r+"])) as file:
            file.write("x")
    elif what == 8 and (is_file or is_directory):
        os.chmod(path, chance.choice([0o700, 0o755]))
    elif what == 9 and (is_file or is_directory):
        os.setxattr(path, "user.c%d" % chance.randrange(2), b"1")
    elif what == 10 and is_file:
        other = some_path(chance, root)
        if not os.path.lexists(other):
            os.link(path, other)
    elif what == 11 and there:
        other = some_path(chance, root)
        if not (other + "/").startswith(path + "/") and not (path + "/").startswith(other + "/"):
            remove(other)
            try:
                shutil.move(path, other)  # the kernel renames no directory of a lower layer
            except shutil.Error:
                pass  # it copies, but no pipes
    elif what == 12 and is_file:
        with open(path) as file:
            content = file.read()
        os.unlink(path)
        with open(path, "w") as file:
            file.write(content)
    elif what == 13 and there:
        remove(path)
        if chance.random() < 0.5:
            os.mkdir(path)


def mounted(work, upper, lower):
    for name in (upper, work, "/mnt/merged"):
        os.makedirs(name, exist_ok=True)
    options = "userxattr,xino=off,lowerdir=%s,upperdir=%s,workdir=%s" % (":".join(lower), upper, work)
    syscalls.mount("overlay", "/mnt/merged", "overlay", 6, options)
    return "/mnt/merged"


def expected(old, new):
    found = {}
    for path in {**old, **new}:
        before, now = old.get(path), new.get(path)
        if before is None:
            found[path] = "added"
        elif now is None:
            above = os.path.dirname(path)
            # What was in a directory that is gone, or is no directory any more, goes without saying.
            if above == "/" or new.get(above, (0,))[0] == stat.S_IFDIR:
                found[path] = "deleted"
        elif before[:4] != now[:4]:
            found[path] = "changed"
    return found


def told(upper, lower):
    opened = [[os.open(path, os.O_PATH) for path in side] for side in (upper, lower)]
    items = overlay.compare(*opened)
    found = {}
    for item in items:
        if item.change is not None:
            assert item.path not in found and item.path == item.change.path
            found[item.path] = item.change.kind
    for descriptor in opened[0] + opened[1]:
        os.close(descriptor)
    return found


def check(told, expected, what):
    differ = {path for path in {**told, **expected} if told.get(path) != expected.get(path)}
    assert not differ, (what, [(path, told.get(path), expected.get(path)) for path in sorted(differ)])


def attempt(seed):
    chance = random.Random(seed)
    namespaces.enter_user_namespace(0, 0)
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("tmpfs", "/mnt", "tmpfs", 6, "mode=0755")
    home = "%s/%d" % (directory, seed)
    base, layer = home + "/base", home + "/layer"
    os.makedirs(base)
    for _ in range(60):
        change(chance, base)
    shots = [snapshot(base)]
    for lower, upper in ((["%s" % base], "/mnt/first"), (["/mnt/first", base], "/mnt/second")):
        root = mounted("/mnt/work", upper, lower)
        for _ in range(40):
            change(chance, root)
        shots.append(snapshot(root))
        syscalls.umount(root, 0)
        shutil.rmtree("/mnt/work")
    first, second = "/mnt/first", "/mnt/second"
    check(told([first], [base]), expected(shots[0], shots[1]), "the first layer")
    check(told([second], [first, base]), expected(shots[1], shots[2]), "the second layer")
    check(told([second, first], [base]), expected(shots[0], shots[2]), "both layers")
    os.mkdir(layer)
    opened = [os.open(path, os.O_PATH) for path in (second, first, base, layer)]
    writer = _Writer(opened[3], "")
    for item in overlay.compare(opened[:2], opened[2:3]):
        writer.take(item)
    writer.finish()
    root = mounted("/mnt/work", "/mnt/third", [layer, base])
    shown = snapshot(root)
    assert {path: facts[:4] for path, facts in shown.items()} == {
        path: facts[:4] for path, facts in shots[2].items()
    }, "what was written"
    for path, facts in shown.items():
        if facts[0] == stat.S_IFREG:
            assert facts[4] == shots[2][path][4], "a time"
    syscalls.umount(root, 0)
    return sum(map(len, shots))


total = 0
for seed in range(int(first), int(last)):
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = ""
        try:
            text = str(attempt(seed))
        except BaseException:
            text = traceback.format_exc()
        os.write(send, text.encode()[-4000:])
        os._exit(0)
    os.close(send)
    with open(receive) as file:
        text = file.read()
    os.waitpid(pid, 0)
    if not text.isdigit():
        sys.exit("with seed %d: %s" % (seed, text))
    total += int(text)
print(json.dumps(total))
"""


def test_the_same_as_the_kernel(actor: Actor) -> None:
    """What layers are said to change is what the mounted overlay shows, and so is the layer made of that."""
    directory = actor.directory("overlays")
    library = str(Path(actor.coop[-1]).parent / "lib")
    done = actor.run(actor.coop[0], "-I", "-c", _PROGRAM, library, str(directory), "0", "60")
    assert done.status == 0, done
    entries: Any = json.loads(done.out)
    assert entries > 1000, "the changes were none to speak of"
