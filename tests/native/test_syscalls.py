"""System calls that a kernel or a container may lack, or of which the interpreter has to be told."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.sandboxes import Project, run


def inside(project: Project, text: str) -> str:
    """Run Python code of coop's in new user and mount namespaces; return what it prints."""
    python, *options, script = project.actor.coop
    begin = """
    import os, sys
    sys.path.insert(0, sys.argv[1])
    from coopfile.native import namespaces, syscalls
    """
    code = textwrap.dedent(begin) + textwrap.dedent(text)
    command = [*project.actor.prefix, "unshare", "--user", "--map-root-user", "--mount"]
    given = [python, *options, "-c", code, str(Path(script).parent / "lib")]
    result = run([*command, *given], b"", project.directory, project.environment)
    assert result.status == 0, result
    return result.out


def test_a_copy_with_attributes(project: Project) -> None:
    """A copy of mounts has its attributes, and those below it, also on kernels with a call less."""
    text = """
    syscalls.mount("tmpfs", "/tmp", "tmpfs", 0)
    os.makedirs("/tmp/from/below")
    os.mkdir("/tmp/to")
    syscalls.mount("tmpfs", "/tmp/from/below", "tmpfs", 0)
    for can in (True, False):
        syscalls._can_open_with = can
        attributes = syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NODEV
        copy = syscalls.open_tree(syscalls.AT_FDCWD, "/tmp/from", attributes)
        syscalls.move_mount(copy, syscalls.AT_FDCWD, "/tmp/to")
        for line in open("/proc/self/mountinfo"):
            if " /tmp/to" in line:
                print(line.split()[4], line.split()[5])
        syscalls.umount("/tmp/to")
    """
    found = inside(project, text).split("\n")
    assert [line.startswith("/tmp/to ro,nodev") for line in found[:4:2]] == [True, True], found
    assert [line.startswith("/tmp/to/below ro,nodev") for line in found[1:4:2]] == [True, True], found


def test_a_call_that_is_missing_is_noticed(project: Project) -> None:
    """What the newer call refuses the older ones are asked for, whose errors count."""
    text = """
    syscalls._OPEN_TREE_ATTR = 1 << 20
    copy = syscalls.open_tree(syscalls.AT_FDCWD, "/usr", syscalls.MOUNT_ATTR_RDONLY)
    print(bool(os.fstatvfs(copy).f_flag & os.ST_RDONLY), syscalls._can_open_with)
    try:
        syscalls.open_tree(syscalls.AT_FDCWD, "/not/there", syscalls.MOUNT_ATTR_RDONLY)
    except OSError as error:
        print(error.filename, error.strerror)
    """
    assert inside(project, text) == "True False\nopen_tree No such file or directory\n"


def test_a_fork_into_namespaces(project: Project) -> None:
    """The child is number 1 of its own, the interpreter has been told, and both go on as after a fork."""
    text = """
    import threading
    told = []
    os.register_at_fork(
        before=lambda: told.append("before"),
        after_in_parent=lambda: told.append("parent"),
        after_in_child=lambda: told.append("child"),
    )
    own = os.getpid(), threading.get_native_id()
    reading, writing = os.pipe()
    gate, opener = os.pipe()
    pid = syscalls.fork_into(namespaces.FIRST)
    if pid == 0:
        os.read(gate, 1)
        thread = threading.Thread(target=lambda: told.append("thread"))
        thread.start()
        thread.join()
        again = os.fork()
        if again == 0:
            os._exit(7)
        status = os.waitstatus_to_exitcode(os.waitpid(again, 0)[1])
        text = f"{os.getpid()} {os.getuid()} {threading.get_native_id()} {told} {status}"
        os.write(writing, text.encode())
        os._exit(3)
    namespaces.map_ids(pid, 12, 34)
    os.write(opener, b"1")
    print(os.read(reading, 1000).decode())
    print(told[:2], os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), own == (os.getpid(), own[1]))
    """
    child, parent = inside(project, text).splitlines()
    assert child.startswith("1 12 1 ['before', 'child', 'thread'"), child
    assert child.endswith(" 7")
    assert parent == "['before', 'parent'] 3 True"


def test_a_fork_that_is_refused(project: Project) -> None:
    """No more namespaces: an error as of any call, and the interpreter can fork as before."""
    text = """
    open("/proc/sys/user/max_user_namespaces", "w").write("0")
    try:
        syscalls.fork_into(namespaces.FIRST)
    except OSError as error:
        print(error.filename, error.strerror)
    pid = os.fork()
    if pid == 0:
        os._exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert inside(project, text) == "clone No space left on device\n5\n"
