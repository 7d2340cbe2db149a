"""Who the command is inside, and whose its files are outside."""

from __future__ import annotations

import pytest

from tests.sandboxes import Project, processes

pytestmark = pytest.mark.native


def test_root_inside(project: Project) -> None:
    """session.user = "root", the default: uid 0 inside, the caller outside."""
    script = 'id -u; id -g; whoami; echo "$HOME"; test -w "$HOME" && stat -c "%u %g %a" "$HOME"'
    assert project.output(script).split("\n") == ["0", "0", "root", "/root", "0 0 700"]


def test_me_inside(project: Project) -> None:
    """session.user = "me": the caller's own ids inside, with a home and an account."""
    project.coopfile('session.user = "me"\n')
    uid, gid = project.actor.uid, project.actor.gid
    script = 'id -u; id -g; echo "$USER $HOME"; test -w "$HOME" && stat -c "%u %g %a" "$HOME"'
    assert project.output(script).split("\n") == [
        str(uid),
        str(gid),
        "tester /home/tester",
        f"{uid} {gid} 700",
    ]
    assert project.output("getent passwd tester | cut -d: -f 3,4,6") == f"{uid}:{gid}:/home/tester"
    if uid != 0:
        assert project.output("whoami") == "tester"


@pytest.mark.parametrize("name", ["../../etc", "a b", "x:0:0", "-rf", "né"])
def test_odd_account_names(project: Project, name: str) -> None:
    """A $USER that is no account name does not reach paths or the account file."""
    project.coopfile('session.user = "me"\n')
    script = 'echo "$HOME"; wc -l < /etc/passwd'
    assert project.output(script, environment={"USER": name}).split("\n") == ["/home/user", "3"]


def test_accounts(project: Project) -> None:
    """The account files name nobody of the host but those inside."""
    assert project.output("cut -d: -f1 /etc/passwd /etc/group").split() == [
        "root",
        "nobody",
        "root",
        "nogroup",
    ]


@pytest.mark.parametrize("user", ["root", "me"])
def test_owner_of_new_files(project: Project, user: str) -> None:
    """What the command makes in the workspace belongs to the caller on the host."""
    project.coopfile(f'session.user = "{user}"\n')
    project.output("mkdir made; echo x > made/file; ln -s file made/link; chmod 600 made/file")
    for name in ("made", "made/file", "made/link"):
        status = (project.directory / name).lstat()
        assert (status.st_uid, status.st_gid) == (project.actor.uid, project.actor.gid)
    assert (project.directory / "made/file").stat().st_mode & 0o7777 == 0o600


def test_owner_of_existing_files(project: Project) -> None:
    """The caller's files look like the command's own, everybody else's like nobody's."""
    project.write("mine", "x")
    mine, tool = project.output("stat -c %u mine /usr/bin/env").split("\n")
    assert mine == "0"
    assert tool == ("0" if project.actor.uid == 0 else "65534")


@pytest.mark.parametrize("user", ["root", "me"])
def test_no_capabilities(project: Project, user: str) -> None:
    """No capability is left in any set, uid 0 or not, and none comes back by running a program."""
    project.coopfile(f'session.user = "{user}"\n')
    sets = project.output("grep ^Cap /proc/self/status; grep ^NoNewPrivs /proc/self/status").split()
    assert sets[1::2] == ["0" * 16] * 5 + ["1"]


def test_no_supplementary_groups(project: Project) -> None:
    """The caller's other groups do not help the command."""
    groups = project.output("grep ^Groups /proc/self/status").split()[1:]
    assert set(groups) <= {"65534"}


def test_set_uid_programs_do_nothing(project: Project) -> None:
    """A set-uid bit on a file of the workspace gives nothing."""
    project.coopfile('session.user = "me"\n')
    project.output("cp /usr/bin/id own")
    (project.directory / "own").chmod(0o6755)
    assert project.output("./own -u; ./own -g").split() == [str(project.actor.uid), str(project.actor.gid)]


def test_no_set_id_programs_are_made(project: Project) -> None:
    """The command cannot leave a set-uid or set-gid program of the caller's in the workspace."""
    script = """
import ctypes, os
data = open("/bin/true", "rb").read()
def tried(call, *arguments):
    try:
        return call(*arguments)
    except PermissionError:
        return None
for n, mode in enumerate((0o4755, 0o2755, 0o6755)):
    fd = os.open(f"made{n}", os.O_CREAT | os.O_RDWR, mode & 0o777)
    os.write(fd, data)
    tried(os.chmod, f"made{n}", mode)
    tried(os.fchmod, fd, mode)
    tried(os.open, f"new{n}", os.O_CREAT | os.O_RDWR, mode)
    tried(os.mknod, f"node{n}", 0o100000 | mode)
"""
    assert project.python(script).status == 0
    names = [path.name for path in project.directory.iterdir() if path.is_file()]
    assert {"made0", "made1", "made2"} <= set(names)
    for name in names:
        status = (project.directory / name).stat()
        assert not status.st_mode & 0o6000, (name, oct(status.st_mode))


def test_owner_of_the_processes(project: Project) -> None:
    """On the host every process of the sandbox is the caller's."""
    process = project.popen("sh", "-c", "echo ready; sleep 1000")
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    everything = processes()
    family = [process.pid]
    for pid in sorted(everything):
        if everything[pid][0] in family:
            family.append(pid)
    assert len(family) >= 4
    for pid in family:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            ids = [line for line in file if line.startswith("Uid")]
        assert ids[0].split()[1:] == [str(project.actor.uid)] * 4
