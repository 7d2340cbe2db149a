"""The sandbox in which stages are built: what stays in the layer, what is faked, and that everything ends."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from coopfile.rootfs.tree import fingerprint
from tests.builds import BUSYBOX, Build
from tests.sandboxes import (
    abandoned_cgroups,
    cgroup_directories,
    descendants,
    mounts,
    wait_gone,
    wait_until,
)

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not BUSYBOX.exists(), reason="busybox-static is not installed"),
]


def paths(layer: Path) -> list[str]:
    """Return the paths of a layer."""
    return sorted(str(path.relative_to(layer)) for path in layer.rglob("*"))


def test_changes_are_kept(build: Build) -> None:
    """What one step does the next one finds, and the image stays as it is."""
    build.write("opt/old/a", "a")
    build.write("opt/gone", "x")
    before = fingerprint(str(build.base))
    build.output("echo new > /opt/new; rm /opt/gone; rm -r /opt/old; mkdir /opt/old; touch /opt/old/b")
    assert build.output("cat /opt/new; ls /opt /opt/old; umask").split() == [
        *("new", "/opt:", "new", "old"),
        *("/opt/old:", "b", "0022"),
    ]
    assert fingerprint(str(build.base)) == before


def test_a_finished_layer_is_a_lower_one(build: Build) -> None:
    """What a stage removed or replaced is removed and replaced for the stage above it, and for runs."""
    build.write("opt/directory/old", "x")
    build.write("opt/gone", "x")
    build.write("opt/file", "x")
    build.output(
        "rm -r /opt/directory /opt/gone /opt/file; mkdir -p /opt/directory/new /opt/file; ln -s new /opt/gone"
    )
    build.next_stage()
    look = "ls /opt /opt/directory /opt/file; readlink /opt/gone"
    expected = ["/opt:", "directory", "file", "gone", "/opt/directory:", "new", "/opt/file:", "new"]
    assert build.output(look).split() == expected
    assert build.output(look, ordinary=True).split() == expected
    build.output("rm -r /opt/directory; echo y > /opt/directory")
    build.next_stage()
    assert build.output("cat /opt/directory", ordinary=True) == "y"


def test_nothing_of_coops_own_stays(build: Build) -> None:
    """The layer has what the commands made: no names of hosts, no places of mounts, no policy of services."""
    cache = build.actor.directory("cache")
    build.caches = [(str(cache), "/run/coop/apt"), (str(cache), "/srv/cache")]
    build.write("usr/sbin/invoke-rc.d", "#!/bin/sh\n", 0o755)
    build.write("etc/hosts", "1.2.3.4 of-the-image\n")
    build.link("etc/resolv.conf", "../run/of/the/image")
    script = (
        "cat /etc/hosts /etc/hostname; cat /etc/resolv.conf 2> /dev/null; /usr/sbin/policy-rc.d; echo $?;"
        "echo mine >> /etc/hosts; rm /etc/hostname /etc/resolv.conf; touch /etc/kept /root/kept /tmp/t"
        " /var/tmp/t /run/t /dev/t /dev/shm/t /srv/cache/t /run/coop/apt/u"
    )
    seen = build.output(script, network="host")
    assert "of-the-image" not in seen and seen.startswith("127.0.0.1") and seen.endswith("\n101")
    build.output("test -e /tmp/t && test -e /var/tmp/t && test -e /run/t && test ! -e /dev/t")
    assert build.finish().status == 0
    # Directories on the way to what was there for a while, as they are below.
    assert set(paths(build.upper)) - {"usr", "usr/sbin"} == {"etc", "etc/kept", "root", "root/kept"}
    assert sorted(path.name for path in cache.iterdir()) == ["t", "u"]
    build.next_stage()
    assert build.output("readlink /etc/resolv.conf") == "../run/of/the/image"


def test_an_images_own_policy_stays(build: Build) -> None:
    """What an image or a package says about starting services is not touched."""
    build.write("usr/sbin/invoke-rc.d", "#!/bin/sh\n", 0o755)
    build.write("usr/sbin/policy-rc.d", "#!/bin/sh\necho own\n", 0o755)
    assert build.output("/usr/sbin/policy-rc.d") == "own"
    build.output("echo echo other > /usr/sbin/policy-rc.d")
    build.next_stage()
    assert build.output("/usr/sbin/policy-rc.d") == "other"


def test_one_owner(build: Build) -> None:
    """Calls for other owners, users and devices succeed without effect; FIFOs are made."""
    script = """
    set -e
    touch /f; chown 5:6 /f; chgrp 7 /f; chown -R other /etc; stat -c '%u %g' /f
    su other -c 'id -u'
    mknod /null c 1 3; mknod /disk b 8 0; mknod /fifo p
    test ! -e /null; test ! -e /disk; test -p /fifo
    sync /f; sync
    mkdir /jail /jail/bin; cp /bin/busybox /jail/bin/; chroot /jail /bin/busybox ls /
    """
    assert build.output(script).split() == ["0", "0", "0", "bin"]


def test_modes_are_no_obstacle(build: Build) -> None:
    """Root may read and write what no mode allows, as package managers take for granted."""
    build.write("locked/shadow", "secret", 0)
    (build.base / "locked").chmod(0o555)
    assert build.output("cat /locked/shadow; echo x > /locked/new; rm /locked/shadow") == "secret"
    build.next_stage()
    assert build.output("ls /locked; stat -c %a /locked").split() == ["new", "555"]


def test_two_capabilities_and_no_more(build: Build) -> None:
    """A step has what opens its own files and changes its root, and cannot get more."""
    status = build.output("cat /proc/self/status; sh -c 'cat /proc/self/status'; cat /proc/1/status")
    for name, value in (("Inh", 0), ("Prm", 0x40002), ("Eff", 0x40002), ("Bnd", 0x40002), ("Amb", 0)):
        assert status.count(f"Cap{name}:\t{value:016x}") == 3, name
    assert status.count("NoNewPrivs:\t1") == 3 and status.count("Seccomp:\t2") == 3


def test_a_run_fakes_nothing(build: Build) -> None:
    """An ordinary run on the same layers has no capability, and hears the truth about owners and devices."""
    script = "touch /f; {} 2>&1"
    for command in ("chown 5 /f", "chgrp 5 /f", "su other -c true", "mknod /n c 1 3", "chroot / true"):
        assert build.shell(script.format(command)).status == 0, command
        assert build.shell(script.format(command), ordinary=True).status != 0, command
    assert build.shell("touch /f; chmod 4755 /f", ordinary=True).status != 0
    assert "CapBnd:\t0000000000000000" in build.output("cat /proc/self/status", ordinary=True)


def test_set_id_bits_go_in_the_end(build: Build) -> None:
    """Programs may be set-id while a stage is built; the finished layer has no such file, wherever it is."""
    script = """
    cd /opt && for mode in 4755 2755 6711 4000; do touch $mode; chmod $mode $mode; done
    mkdir closed directory; touch closed/x; chmod 4755 closed/x; chmod 0 closed; chmod 2775 directory
    ln 4755 linked; stat -c %a 4755
    """
    build.write("opt/x", "")
    assert build.output(script) == "4755"
    assert stat.S_IMODE((build.upper / "opt/4755").stat().st_mode) == 0o4755
    build.next_stage()
    found = build.output("cd /opt; stat -c '%n %a' 4755 2755 6711 4000 linked closed closed/x directory")
    assert found.split("\n") == [
        *("4755 755", "2755 755", "6711 711", "4000 0", "linked 755"),
        *("closed 500", "closed/x 755", "directory 2775"),
    ]


def test_streams_and_environment(build: Build) -> None:
    """A step has an empty input, one output, what it is given of variables, and no other descriptor."""
    build.project.environment["SECRET"] = "of the caller"
    seen = build.output(
        "env; readlink /proc/self/fd/0; cat; ls /proc/self/fd; echo x >&2", environment={"OF": "image"}
    )
    lines = seen.split("\n")
    assert "OF=image" in lines and "HOME=/root" in lines and "USER=root" in lines
    assert "of the caller" not in seen and "/dev/null" in lines
    assert lines[-5:-1] == ["0", "1", "2", "3"] and lines[-1] == "x"  # 3 is ls's own


def test_what_a_command_leaves_running_ends(build: Build) -> None:
    """A daemon that keeps the output open holds nothing up, and is gone with the step."""
    own = f"{1000 + os.getpid()}.25"  # seconds that no other test sleeps
    process = build.start(f"setsid sleep {own} & (trap '' HUP TERM; sleep {own}) & echo done")
    assert process.communicate(timeout=60)[0] == b"done\n"
    assert process.returncode == 0
    assert not any(own in command for command in commands())


def commands() -> list[str]:
    """Return the command lines of every process of the host."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return found


def test_timeout(build: Build) -> None:
    """A step that takes too long is ended, whatever it does against it."""
    result = build.shell("echo begun; trap '' TERM; sleep 1000", timeout=1.0)
    assert result.status == 124 and result.out == "begun\n" and "was ended after 1 s" in result.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_callers_end_ends_everything(build: Build, number: signal.Signals) -> None:
    """Interrupted, asked to end or killed, a build leaves no process, no mount and no control group."""
    before, groups = mounts(), cgroup_directories()
    process = build.start("trap '' INT TERM HUP QUIT; sleep 1000 & echo begun; while :; do sleep 1000; done")
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    inside = descendants(process.pid)
    assert len(inside) >= 4  # monitor, PID 1, the shell, what it started
    process.send_signal(number)
    process.wait(60)
    assert process.returncode != 0
    assert wait_gone(inside)
    assert mounts() == before
    assert wait_until(lambda: not abandoned_cgroups(groups), 10)


def test_an_interrupt_is_told(build: Build) -> None:
    """SIGINT reaches the caller as KeyboardInterrupt, as if it had run the command itself."""
    process = build.start("trap '' INT; echo begun; sleep 1000")
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in process.communicate(timeout=60)[1]


def test_limits(build: Build) -> None:
    """The limits of runs hold for builds."""
    script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; echo all"
    result = build.shell(script, limits={"pids": 8})
    if os.geteuid() == 0 and "all" in result.out and not cgroups_work():
        pytest.skip("no control group for processes on this machine, and root has no other limit")
    assert "can't fork" in result.out, result
    assert build.shell("echo x > /dev/shm/y && cat /dev/zero > /dev/shm/x", limits={"tmp": 1 << 20}).status


def cgroups_work() -> bool:
    """Tell whether a control group can limit processes here."""
    from coopfile.native import hierarchies

    return not hierarchies.find(wanted=("pids",))[1]


def test_file_systems_that_will_not_do(build: Build) -> None:
    """An upper layer that keeps no attributes, or cannot be one, is refused with what to do."""
    if os.geteuid() != 0 and build.actor.name != "user":
        pytest.skip("needs a mount namespace")
    inside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    place = build.upper.parent
    for mount, expected in (
        (
            f"mount -t ramfs none {build.upper} && mkdir {build.upper}/u {build.upper}/w",
            "keeps no attributes",
        ),
        (
            f"mount -t overlay -o userxattr,lowerdir={build.base},upperdir={build.upper},workdir={build.work}"
            f" none {build.scratch} && mkdir {build.scratch}/u {build.scratch}/w",
            "an upper layer",
        ),
    ):
        where = build.upper if "ramfs" in mount else build.scratch
        build.wrap = (*inside, f'{mount} && exec "$@"', "sh")
        result = build.shell("true", upper=f"{where}/u", work=f"{where}/w", scratch=str(place))
        assert result.status != 0 and expected in result.err, result
        assert "coop's data" in result.err and "Traceback" not in result.err
