"""What the command gets of the caller's environment, and where it stands."""

from __future__ import annotations

import os
import tarfile
import time
from typing import Any

import pytest

from coopfile.plan.sessions import session_id
from tests.sandboxes import Project

pytestmark = pytest.mark.native

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def variables(project: Project, **how: Any) -> dict[str, str]:
    """Return the command's whole environment."""
    result = project.run("env", "-0", **how)
    assert result.status == 0, result
    return dict(item.split("=", 1) for item in result.out.split("\0")[:-1])


def test_exact_list(project: Project) -> None:
    """The environment is the documented list and nothing else."""
    before = int(time.time())
    found = variables(project)
    created = found.pop("COOP_CREATED")
    assert before <= int(created) <= time.time()
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    assert found == {
        "COOP_SESSION": session_id(str(project.directory), None),
        "COOP_WORKSPACE": "/workspace",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "LOGNAME": "root",
        "PATH": PATH,
        "PWD": "/workspace",
        "SHELL": shell,
        "TAR_OPTIONS": "--no-same-owner",
        "TERM": "dumb",
        "USER": "root",
    }


def test_passed_without_being_named(project: Project) -> None:
    """How to talk to the terminal, and in which language, passes; what only looks alike does not."""
    passed = {"COLORTERM": "truecolor", "TERM": "xterm", "TZ": "UTC", "LC_ALL": "C", "NO_COLOR": "1"}
    other = {"TERMCAP": "x", "LCALL": "x", "LD_PRELOAD": "", "LANGUAGES": "x", "term": "x"}
    found = variables(project, environment={**passed, **other})
    assert passed.items() <= found.items()
    assert not set(other) & set(found)


def test_own_path_not_passed(project: Project) -> None:
    """The caller's PATH, which may lead into places that the sandbox does not have, is not used."""
    assert variables(project, environment={"PATH": f"{project.home}/bin:{PATH}"})["PATH"] == PATH


def test_variables_of_the_plan(project: Project) -> None:
    """[env] adds plain values and values of the host's variables, under other names too."""
    project.coopfile('[env]\nEDITOR = "vi"\nEMPTY = ""\nTOKEN = { host = "HOST_TOKEN" }\nPATH = "/bin"\n')
    found = variables(project, environment={"HOST_TOKEN": "s3cret=\n1"})
    assert found["EDITOR"] == "vi"
    assert found["EMPTY"] == ""
    assert found["TOKEN"] == "s3cret=\n1"
    assert found["PATH"] == "/bin"
    assert "HOST_TOKEN" not in found


def test_missing_host_variable(project: Project) -> None:
    """A variable that the host does not have is absent inside, and -v says so."""
    project.coopfile('[env]\nTOKEN = { host = "HOST_TOKEN" }\n')
    assert "TOKEN" not in variables(project)
    assert "HOST_TOKEN" in project.run("true", options=["-v"]).err


def test_secret_does_not_leak(project: Project) -> None:
    """A variable that nobody named is nowhere in the sandbox, not even in PID 1's memory of it."""
    secret = "unguessable-7261"
    script = "env; for p in /proc/[0-9]*; do cat $p/environ $p/cmdline; done 2>/dev/null; true"
    result = project.shell(script, environment={"AWS_SECRET": secret})
    assert "PATH" in result.out
    assert secret not in result.out
    assert project.run("cat", "/proc/1/environ").status != 0


def test_secret_is_not_stored(project: Project) -> None:
    """The value of a host's variable, though used, is in no file that coop keeps."""
    project.coopfile('[env]\nTOKEN = { host = "HOST_TOKEN" }\n')
    secret = "unguessable-8372"
    time.sleep(0.1)  # a Coopfile as new as this would not be cached
    for _ in range(2):
        assert project.output("echo $TOKEN", environment={"HOST_TOKEN": secret}) == secret
    files = [path for path in project.home.rglob("*") if path.is_file()]
    session = session_id(str(project.directory), None)
    places = ["approvals", "audit", "plans", session, "running"]
    assert sorted(path.parent.name for path in files) == sorted(places)
    assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_subdirectory(project: Project) -> None:
    """A caller who stands below the workspace's root stands there inside as well."""
    below = project.mkdir("src/deep")
    assert project.output("pwd; echo $PWD; pwd -P", cwd=below).split("\n") == ["/workspace/src/deep"] * 3
    assert project.output("pwd", options=["-C", str(below)]) == "/workspace/src/deep"


def test_link_to_the_project(project: Project) -> None:
    """A caller who came through a link stands at the same place."""
    link = project.home / "link"
    link.symlink_to(project.directory)
    assert project.output("pwd -P; ls Coopfile", cwd=link) == "/workspace\nCoopfile"


def test_umask_is_the_callers(project: Project) -> None:
    """New files get the modes that the caller's umask leaves, also when coop makes directories itself."""
    project.wrap = ("sh", "-c", 'umask 027; exec "$@"', "sh")
    assert project.output("umask; touch new; ls -d /tmp >/dev/null") == "0027"
    assert (project.directory / "new").stat().st_mode & 0o777 == 0o640


def test_an_archive_of_others(project: Project) -> None:
    """tar unpacks what others have packed, although root in a sandbox can give files to nobody."""
    with tarfile.open(project.directory / "others.tar", "w") as archive:
        entry = tarfile.TarInfo("file")
        entry.uid = entry.gid = 12345
        archive.addfile(entry)
    for options in ((), ("--set", "session.user=me")):
        result = project.shell(
            "tar -c others.tar | tar -t >&2 && tar -x -f others.tar -C /tmp && stat -c %u /tmp/file && id -u",
            options=options,
        )
        assert result.status == 0, result
        owner, own = result.out.split()
        assert owner == own
