"""What sessions change of an image's root file system: shown, kept for later runs, and dropped again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.sandboxes import Project, Result, descendants, kill, wait_until
from tests.sessionseen import keeper

INSTALL = "mkdir -p /opt/tool && echo one > /opt/tool/data && echo '#!/bin/sh' > /bin/tool"


class Sessions:
    """A project on an image of busybox, and what its sessions do."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.store = Path(project.environment["HOME"], ".local/share/coop/rootfs")

    def shell(self, script: str, name: str = "work") -> str:
        """Run a script in a session, started if need be; it has to succeed."""
        result = self.project.shell(script, options=("-q", "--session", name))
        assert result.status == 0, result
        return result.out.rstrip("\n")

    def coop(self, *argv: str) -> str:
        """Run a verb that has to succeed; return what it prints."""
        result = self.project.coop(*argv)
        assert result.status == 0, result
        return result.out.rstrip("\n")

    def changes(self, name: str = "work") -> dict[str, str]:
        """Return what ``coop diff`` tells: kinds by path."""
        data: Any = json.loads(self.coop("diff", name, "--json"))
        assert data["too_deep"] == []
        found = {item["path"]: item["kind"] for item in data["changes"]}
        assert len(found) == len(data["changes"])
        return found

    def stages(self) -> set[str]:
        """Return the keys of all stages."""
        return {path.name for path in (self.store / "stages").iterdir()}

    def building(self) -> set[str]:
        """Return the names of what is under way: before Linux 6.6 that is also what sessions write."""
        return set(os.listdir(self.store / "building"))

    def argv(self, *verb: str) -> list[str]:
        """Return the command line of a verb."""
        actor = self.project.actor
        return [*actor.prefix, *actor.coop, "-C", str(self.project.directory), *verb]

    def popen(self, *verb: str) -> subprocess.Popen[bytes]:
        """Start a verb, in a process group of its own."""
        return subprocess.Popen(
            self.argv(*verb),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.project.environment,
            start_new_session=True,
        )

    def terminal(self, *verb: str) -> pexpect.spawn[str]:
        """Start a verb on a terminal; the caller waits for its end."""
        command = self.argv(*verb)
        environment: Any = self.project.environment
        return pexpect.spawn(command[0], command[1:], env=environment, timeout=60, encoding="utf-8")

    def fails(self, *argv: str) -> Result:
        """Run a verb that has to fail with words, not a traceback."""
        result = self.project.coop(*argv)
        assert result.status == 125 and "help:" in result.err and "Traceback" not in result.err, result
        return result


@pytest.fixture
def sessions(imaged: Callable[..., Project]) -> Iterator[Sessions]:
    """Yield sessions on an image with a few files; they are ended with the test."""
    project = imaged(
        {"etc/link": "version"},
        **{
            "etc/version": "one\n",
            "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
            "usr/share/doc/a": "a" * 1000,
            "usr/share/doc/b": "b" * 500,
        },
    )
    found = Sessions(project)
    yield found
    project.coop("reset")
    project.coop("stop", "--all")


def test_diff_is_exact(sessions: Sessions) -> None:
    """What a session changed is told, all of it and nothing else: neither mounts nor what coop put there."""
    assert sessions.shell("true") == "" and sessions.changes() == {}
    sessions.shell(INSTALL)
    sessions.shell("echo two > /etc/version; busybox rm -r /usr/share/doc; busybox chmod 700 /usr/share")
    sessions.shell(
        "touch /bin/sh; echo x > /tmp/x; echo x > /workspace/x; echo x > ~/.claude/x; echo x > ~/x"
    )
    sessions.shell("busybox ln -sf other /etc/link; touch /usr/share/doc; busybox rm /usr/share/doc")
    assert sessions.changes() == {
        "/bin/tool": "added",
        "/etc/link": "changed",
        "/etc/version": "changed",
        "/opt": "added",
        "/opt/tool": "added",
        "/opt/tool/data": "added",
        "/root/x": "added",
        "/usr/share": "changed",
        "/usr/share/doc": "deleted",
    }
    lines = sessions.coop("diff", "work").splitlines()
    assert "deleted  /usr/share/doc/  (1.5 kB)" in lines
    assert "added    /opt/tool/data  (4 B)" in lines
    assert "changed  /usr/share/  (mode 755 → 700)" in lines
    assert "changed  /etc/link  (link)" in lines


def test_diff_of_content(sessions: Sessions) -> None:
    """Text is shown as a unified diff that ``patch`` would take, of links where they lead; binary is not."""
    sessions.shell("echo two >> /etc/version; echo new > /new; busybox ln -sf other /etc/link")
    sessions.shell("echo x >> /bin/busybox2; busybox printf 'a\\0b' > /binary; busybox printf end > /open")
    out = sessions.coop("diff", "work", "--content") + "\n"
    assert "--- a/etc/version\n+++ b/etc/version\n@@ -1 +1,2 @@\n one\n+two\n" in out
    assert "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+new\n" in out
    assert "-version\n" in out and "+other\n" in out
    assert "added    /binary  (3 B)\nbinary files differ\n" in out
    assert "@@ -0,0 +1 @@\n+end\n\\ No newline at end of file" in out


def test_a_terminal_is_not_harmed(sessions: Sessions) -> None:
    """Names and content with escape sequences, newlines or no UTF-8 are shown escaped."""
    script = (
        'cd /; f=$(busybox printf \'e\\033[2J\'); echo "$f" > "$f"; g=$(busybox printf \'n\\nm\'); touch "$g"'
    )
    sessions.shell(script + "; touch \"$(busybox printf 'u\\377')\"")
    result = sessions.project.coop("diff", "work", "--content")
    assert result.status == 0 and b"\x1b" not in result.stdout
    assert "added    /e\\x1b[2J  (6 B)\n" in result.out and "+e\\x1b[2J\n" in result.out
    assert "added    /n\\nm  (0 B)\n" in result.out and "added    /u\\xff  (0 B)\n" in result.out
    assert set(sessions.changes()) == {"/e\x1b[2J", "/n\nm", "/u\udcff"}


def test_committed_is_there_afterwards(sessions: Sessions) -> None:
    """What is committed is in later runs and sessions, no longer a difference, until it is reset."""
    project = sessions.project
    before = sessions.stages()
    sessions.shell(INSTALL + "; busybox rm -r /usr/share/doc; echo two > /etc/version")
    assert sessions.coop("commit", "work").startswith("committed: added 4, changed 1, deleted 1 (")
    show = "cat /opt/tool/data /etc/version; ls /usr/share; ls /bin/tool"
    assert project.output(show) == "one\ntwo\n/bin/tool"
    assert sessions.shell(show, "other") == "one\ntwo\n/bin/tool"
    assert sessions.changes("other") == {}
    sessions.coop("stop", "work")
    assert sessions.shell(show) == "one\ntwo\n/bin/tool" and sessions.changes() == {}
    assert "committed" in sessions.coop("status")
    assert "is ready" in project.coop("init").err
    assert sessions.coop("clean").endswith("in 0 stages") and project.output(show) == "one\ntwo\n/bin/tool"

    dropped = project.coop("reset")
    assert dropped.status == 0 and dropped.out.startswith("dropped "), dropped
    assert "other goes on" in dropped.err and "work goes on" in dropped.err
    assert project.output("cat /etc/version; ls /usr/share/doc; ls /opt 2>&1 | cat").splitlines()[0] == "one"
    assert sessions.shell("cat /opt/tool/data") == "one", "a session lost what it was started with"
    sessions.coop("stop", "--all")
    assert sessions.shell("ls /opt 2>/dev/null || echo none") == "none"
    sessions.coop("clean")
    assert sessions.stages() == before
    assert sessions.coop("reset") == "nothing is committed for this project"


def test_commits_add_up(sessions: Sessions) -> None:
    """A session that runs on what was committed adds to it, takes from it, and commits again and again."""
    sessions.shell("mkdir /opt; echo 1 > /opt/one; echo 1 > /opt/both; busybox ln /opt/one /opt/same")
    sessions.coop("commit", "work")
    sessions.coop("stop", "work")
    sessions.shell("echo 2 > /opt/two; echo 2 > /opt/both; busybox rm /opt/one; busybox rm -r /usr/share/doc")
    assert sessions.changes() == {
        "/opt/both": "changed",
        "/opt/one": "deleted",
        "/opt/two": "added",
        "/usr/share/doc": "deleted",
    }
    sessions.coop("commit", "work")
    show = "cat /opt/*; ls /opt /usr/share"
    expected = "2\n1\n2\n/opt:\nboth\nsame\ntwo\n\n/usr/share:"
    assert sessions.project.output(show) == expected
    sessions.shell("echo 3 > /opt/three")
    assert sessions.coop("commit", "work").startswith(
        "committed: "
    )  # the same life: in the place of the last
    assert sessions.project.output(
        "cat /opt/three; " + show.replace("*", "[bst][oaw]*")
    ) == "3\n" + expected.replace("two\n", "three\ntwo\n").replace("2\n1\n2\n", "2\n1\n2\n", 1)
    assert sum(1 for line in sessions.coop("status").splitlines() if line.split()[:1] == ["committed"]) == 1
    sessions.coop("clean")
    assert "three" in sessions.project.output(show)


def test_nothing_to_commit(sessions: Sessions) -> None:
    """Without a change there is no stage, and what was committed stays."""
    before = sessions.stages()
    sessions.shell("touch /bin/sh; echo x > /tmp/x; echo x > /workspace/x")
    assert sessions.coop("commit", "work") == "nothing to commit" and sessions.stages() == before


def test_two_sessions(sessions: Sessions) -> None:
    """What another session has committed meanwhile is not dropped, and what was reset does not come back."""
    sessions.shell("echo a > /a", "one")
    sessions.shell("echo b > /b", "two")
    sessions.coop("commit", "one")
    refused = sessions.fails("commit", "two")
    assert "another session has committed" in refused.err and "--replace" in refused.err
    assert sessions.project.output("cat /a; ls /b 2>/dev/null | cat") == "a"
    sessions.coop("commit", "two", "--replace")
    assert sessions.project.output("cat /b; ls /a 2>/dev/null | cat") == "b"
    sessions.shell("echo c > /c", "three")
    sessions.coop("reset")
    assert "was reset" in sessions.fails("commit", "three").err
    assert sessions.project.output("ls /b /c 2>/dev/null | cat") == ""


def test_another_base(sessions: Sessions) -> None:
    """What was committed does not count on another base; runs say so, and it is there again on its own."""
    project = sessions.project
    coopfile = (project.directory / "Coopfile").read_text()
    sessions.shell("echo a > /a")
    project.coopfile(coopfile + 'setup.run = ["echo built > /built"]\nsetup.network = "none"\n')
    committed = project.coop("commit", "work")
    assert committed.status == 0 and "runs do not have" in committed.err, committed
    made = project.coop("init")
    assert made.status == 0 and "stands on another root file system" in made.err, made
    run = project.shell("cat /built; ls /a 2>/dev/null | cat")
    assert run.out == "built\n" and "what sessions have committed is not there" in run.err
    assert "not used" in sessions.coop("status")
    started = project.shell("cat /built", options=("--session", "new"))
    assert started.out == "built\n" and "what sessions have committed is not there" in started.err
    sessions.coop("clean")
    project.coopfile(coopfile)
    run = project.shell("cat /a")
    assert run.out == "a\n" and "not there" not in run.err, run
    project.coopfile(coopfile + 'setup.run = ["echo built > /built"]\nsetup.network = "none"\n')
    assert sessions.coop("reset").startswith("dropped ")
    assert "not there" not in project.shell("true").err


def test_built_anew_meanwhile(sessions: Sessions) -> None:
    """A session on stages that were built anew since is not committed: nobody would have it."""
    coopfile = (sessions.project.directory / "Coopfile").read_text()
    sessions.project.coopfile(coopfile + 'setup.run = ["echo built > /built"]\nsetup.network = "none"\n')
    assert sessions.project.coop("init").status == 0
    sessions.shell("echo a > /a")
    assert sessions.project.coop("rebuild").status == 0
    assert "built anew" in sessions.fails("commit", "work").err


@pytest.mark.parametrize("verb", ["diff", "commit"])
def test_sessions_without(sessions: Sessions, verb: str) -> None:
    """A session that is not there, does not run, or has the host's own tools is refused with words."""
    assert "no session nobody" in sessions.fails(verb, "nobody").err
    sessions.shell("echo a > /a")
    sessions.coop("stop", "work")
    assert "does not run" in sessions.fails(verb, "work").err
    sessions.project.coopfile("")
    sessions.shell("true", "tools")
    assert "host's own tools" in sessions.fails(verb, "tools").err


def test_commit_is_harmless(sessions: Sessions) -> None:
    """Set-id bits, sockets, attributes of overlayfs and unreadable files do no harm in a committed stage."""
    for line in (
        "cd /; echo x > secret; mkdir closed; echo x > closed/in; busybox chmod 0 secret closed",
        "busybox mkfifo /pipe; busybox ln -s ../../../../../../etc/shadow /out; busybox ln -s / /loop",
        "busybox chmod u+s,g+s /bin/tool 2>/dev/null; busybox chmod 4755 /bin/busybox 2>/dev/null; true",
        "echo 1.2.3.4 evil >> /etc/hosts; busybox truncate -s 1024G /huge",
    ):
        sessions.shell(line)
    result = sessions.project.coop("commit", "work")
    assert result.status == 0 and "/etc/hosts is left out" in result.err, result
    show = "cat /secret; cat /closed/in; ls -l / | cat; cat /etc/hosts"
    out = sessions.project.output(show)
    assert "evil" not in out and "prw" in out and "out -> ../../../../../../etc/shadow" in out, out
    for place, names, files in os.walk(sessions.store / "stages"):
        for name in (*names, *files):
            path = Path(place, name)
            if path.is_symlink() or path.is_dir():
                continue
            assert not path.lstat().st_mode & 0o6000, path


def test_deep_and_wide(sessions: Sessions) -> None:
    """A tree that is too deep is told by ``coop diff`` and refused by ``coop commit``."""
    sessions.shell("cd /; i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done; echo x > /x")
    data: Any = json.loads(sessions.coop("diff", "work", "--json"))
    assert len(data["too_deep"]) == 1 and {"/x", "/d"} <= {item["path"] for item in data["changes"]}
    before, building = sessions.stages(), sessions.building()
    assert "directories in each other" in sessions.fails("commit", "work").err
    assert sessions.stages() == before and sessions.building() == building


def test_while_it_changes(sessions: Sessions) -> None:
    """Processes that change everything meanwhile do not disturb ``coop diff``; ``coop commit`` stops them."""
    project = sessions.project
    sessions.shell("true")
    writer = "mkdir -p /w/a/b; echo $i > /w/a/b/f; busybox mv /w/a /w/c; busybox rm -rf /w; echo > /w; "
    writer += "busybox rm -f /w; busybox ln -s /etc /w; busybox rm /w; i=$((i+1)); echo $i > /n"
    writer = f"i=0; while :; do {writer}; done"
    process = project.popen("sh", "-c", writer, options=("-q", "--session", "work"))
    wait_until(lambda: "/n" in sessions.changes())
    for _ in range(10):
        assert {path.split("/")[1] for path in sessions.changes()} <= {"n", "w"}
    sessions.coop("commit", "work")
    before = sessions.shell("cat /n")
    assert wait_until(lambda: sessions.shell("cat /n") != before), "its processes were not started again"
    process.kill()
    process.wait()
    assert int(sessions.project.output("cat /n")) > 0


def test_a_shell_keeps_its_job(sessions: Sessions) -> None:
    """A shell whose job stands still while ``coop commit`` works does not take it for stopped by Ctrl-Z."""
    sessions.shell("true")
    terminal = sessions.terminal("exec", "work", "--", "sh", "-i")
    terminal.expect("[#$] ")
    for number in range(6):
        terminal.sendline(f"echo > /{number}; touch /tmp/{number}; busybox sleep 1; echo ended=$?")
        wait_until(partial(sessions.shell, f"ls /tmp/{number} 2>/dev/null | cat"))
        sessions.coop("commit", "work")
        assert terminal.expect([r"ended=0\r", r"ended=\d"]) == 0
    terminal.sendline("exit")
    terminal.wait()


@pytest.mark.parametrize("step", range(3))
def test_killed(sessions: Sessions, step: int) -> None:
    """A commit that is killed leaves the store as it was, or complete, and can be done again."""
    project = sessions.project
    sessions.shell("mkdir /many; cd /many; i=0; while [ $i -lt 1500 ]; do echo $i > $i; i=$((i+1)); done")
    before, left = sessions.stages(), sessions.building()
    process = sessions.popen("commit", "work")
    building = sessions.store / "building"

    def is_under_way() -> bool:
        with contextlib.suppress(FileNotFoundError):
            return sum(len(files) for _, _, files in os.walk(building)) > step * 300
        return False

    wait_until(lambda: is_under_way() or process.poll() is not None)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    run = project.output("ls /many 2>/dev/null | busybox wc -l")
    after = sessions.stages()
    assert (run, after == before) in (("0", True), ("0", False), ("1500", False))
    assert len(after - before) <= 1
    assert sessions.shell("echo alive") == "alive", "its processes were not started again"
    sessions.coop("commit", "work")
    assert project.output("ls /many | busybox wc -l") == "1500"
    assert sessions.building() == left


@pytest.mark.parametrize("mode", ["never", "ask", "auto"])
def test_at_the_end(sessions: Sessions, mode: str) -> None:
    """``session.commit`` says what ``coop stop`` does: keeps what was installed, says how to, or nothing."""
    project = sessions.project
    coopfile = (project.directory / "Coopfile").read_text()
    project.coopfile(coopfile + f'session.commit = "{mode}"\n')
    sessions.shell(
        "echo x > ~/.ash_history; mkdir -p ~/.cache /var/log; echo x > ~/.cache/x; echo x > /var/log/x"
    )
    stopped = project.coop("stop", "work")
    assert stopped.status == 0 and "committed" not in stopped.err, stopped
    sessions.shell(INSTALL)
    stopped = project.coop("stop", "work")
    assert stopped.status == 0 and "stopped work" in stopped.out, stopped
    assert ("session work: committed: added 4" in stopped.err) == (mode == "auto"), stopped
    assert ("coop commit work would have kept it" in stopped.err) == (mode == "ask"), stopped
    assert project.output("ls /opt 2>/dev/null | cat") == ("tool" if mode == "auto" else "")


@pytest.mark.parametrize("mode", ["ask", "auto"])
def test_committed_before_the_end(sessions: Sessions, mode: str) -> None:
    """What is committed already is not said to be gone; what was changed since then is, and nothing else."""
    project = sessions.project
    project.coopfile((project.directory / "Coopfile").read_text() + f'session.commit = "{mode}"\n')
    sessions.shell("echo x > ~/one; mkdir ~/more; echo y > ~/more/two")
    sessions.coop("commit", "work")
    stopped = project.coop("stop", "work")
    assert (stopped.out, stopped.err) == (
        "stopped work\n",
        "coop: session work: what was committed is kept\n",
    )
    sessions.shell("echo x > ~/three")
    sessions.coop("commit", "work")
    # Changed with the same size and time, undone, and new.
    sessions.shell(
        "touch -r ~/three ~/ref; echo z > ~/three; touch -r ~/ref ~/three; rm ~/one; echo > ~/four"
    )
    stopped = project.coop("stop", "work")
    assert "what was committed is kept" in stopped.err, stopped
    assert "added 2, changed 1, deleted 1 beside the workspace since it was committed" in stopped.err, stopped
    assert "it is gone, and coop commit work would have kept it" in stopped.err, stopped
    assert project.output("cat ~/one ~/three ~/more/two; ls ~") == "x\nx\ny\nmore\none\nthree"


def test_reset_before_the_end(sessions: Sessions) -> None:
    """What was committed and is dropped again is gone with the session."""
    project = sessions.project
    project.coopfile((project.directory / "Coopfile").read_text() + 'session.commit = "ask"\n')
    sessions.shell(INSTALL)
    sessions.coop("commit", "work")
    sessions.coop("reset")
    stopped = project.coop("stop", "work")
    assert "added 4 beside the workspace: it is gone" in stopped.err and "kept\n" not in stopped.err, stopped


@pytest.mark.parametrize("way", ["ttl", "rm", "crash", "clean", "no-commit"])
def test_other_ends_commit_nothing(sessions: Sessions, way: str) -> None:
    """Only an end that somebody asks for keeps what ``auto`` keeps, and a session with a ttl says so."""
    project = sessions.project
    project.coopfile((project.directory / "Coopfile").read_text() + 'session.commit = "auto"\n')
    options = ["--ttl", "500ms"] if way == "ttl" else []
    started = project.shell(INSTALL, options=["--session", "work", *options])
    assert started.status == 0 and ("is committed only by coop stop" in started.err) == (way == "ttl"), (
        started
    )
    if way == "ttl":
        assert wait_until(lambda: '"running"' not in sessions.coop("ls", "--json"))
    elif way == "rm":
        sessions.coop("rm", "work")
    elif way == "no-commit":
        sessions.coop("stop", "work", "--no-commit")
    else:
        places = (sessions.store.parent / "sessions").glob("*/alive")
        (monitor,) = filter(None, (keeper(place.parent) for place in places))
        kill(monitor, *descendants(monitor))
        assert wait_until(lambda: '"running"' not in sessions.coop("ls", "--json"))
        sessions.coop("clean" if way == "clean" else "ls")
    assert project.output("ls /opt 2>/dev/null | cat") == ""
    # The next life begins anew: nothing of the last one is taken for its own.
    if way != "rm":
        sessions.shell("true")
        stopped = project.coop("stop", "work")
        assert stopped.status == 0 and "committed" not in stopped.err, stopped


def test_asked_at_the_end(sessions: Sessions) -> None:
    """On a terminal ``ask`` asks, and does what it is told."""
    project = sessions.project
    project.coopfile((project.directory / "Coopfile").read_text() + 'session.commit = "ask"\n')
    for answer, there in (("n", ""), ("y", "tool")):
        sessions.shell(INSTALL)
        terminal = sessions.terminal("stop", "work")
        terminal.expect(r"added 4 beside the workspace: keep that for the next ones\? \[y/N\] ")
        terminal.sendline(answer)
        terminal.expect("stopped work")
        terminal.wait()
        assert project.output("ls /opt 2>/dev/null | cat") == there


def test_what_cannot_be_kept_is_not_ended(sessions: Sessions) -> None:
    """With ``auto``, a session whose changes cannot be kept is not ended unless told so."""
    project = sessions.project
    project.coopfile((project.directory / "Coopfile").read_text() + 'session.commit = "auto"\n')
    sessions.shell("echo a > /bin/a", "one")
    sessions.shell("echo b > /bin/b", "two")
    sessions.coop("stop", "one")
    assert "--no-commit" in sessions.fails("stop", "two").err
    assert sessions.shell("cat /bin/b", "two") == "b"
    assert sessions.coop("stop", "two", "--no-commit") == "stopped two"


def test_the_descriptor_is_out_of_reach(sessions: Sessions) -> None:
    """A command cannot get at what PID 1 keeps open of the upper directory, nor see it among its own."""
    tries = "readlink /proc/1/fd/$n; ls /proc/1/fd/$n/; cat /proc/1/fd/$n/bin/busybox < /dev/null"
    look = f"n=0; while [ $n -lt 64 ]; do {tries}; n=$((n+1)); done 2>/dev/null"
    assert sessions.shell(f"echo x > /x; {look}; ls -l /proc/self/fd | busybox grep upper || true") == ""


def test_every_user_has_their_own(sessions: Sessions) -> None:
    """What a user's session has committed is in that user's runs and in nobody else's."""
    project = sessions.project
    text = (project.directory / "Coopfile").read_text()
    project.coopfile(text + '[[users]]\nname = "ann"\ntrust = "full"\nmatch = ["x:ann"]\n')
    sessions.coop("allow", "--quiet", "--as", "x:ann")
    as_ann = ("--as", "x:ann")
    done = project.shell("echo a > /a", options=("-q", "--session", "work", *as_ann))
    assert done.status == 0, done
    sessions.coop("commit", "work", *as_ann)
    assert project.output("cat /a", options=as_ann) == "a"
    assert project.output("ls /a 2>/dev/null | cat") == ""
    sessions.coop("reset")
    assert project.output("cat /a", options=as_ann) == "a"
    assert sessions.coop("reset", *as_ann).startswith("dropped ")
    assert project.output("ls /a 2>/dev/null | cat", options=as_ann) == ""
