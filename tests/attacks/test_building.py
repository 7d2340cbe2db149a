"""Attacks by what is run while a root file system is built, and by the image it is built on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pexpect
import pytest

from coopfile.rootfs.tree import fingerprint
from tests.builds import BUSYBOX, Build
from tests.sandboxes import DEADLINE, tree

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not BUSYBOX.exists(), reason="busybox-static is not installed"),
]


@pytest.fixture
def outside(build: Build) -> Path:
    """Return a directory of the actor's with files that coop itself removes from layers."""
    directory = build.actor.directory("outside")
    for name in ("hosts", "hostname", "resolv.conf"):
        build.project.write(str(directory / name), "of the host")
    text = "#!/bin/sh\n# coop: no service is started while a root file system is built\nexit 101\n"
    build.project.write(str(directory / "policy-rc.d"), text, 0o755)
    build.project.write(str(directory / "program"), "", 0o755)
    os.chmod(directory / "program", 0o4755)
    return directory


@pytest.mark.parametrize(
    "name",
    ["tmp", "run", "etc", "proc", "dev", "root", "srv", "var", "var/tmp", "usr", "usr/sbin", "run/coop"],
)
def test_links_of_an_image(build: Build, outside: Path, name: str) -> None:
    """Links of an image, or of a step before, where coop makes or mounts something lead into the image."""
    cache = build.actor.directory("cache")
    build.caches = [(str(cache), "/srv/cache"), (str(cache), "/run/coop/apt")]
    if name == "etc":
        (build.base / "etc/passwd").unlink()
        (build.base / "etc").rmdir()
    if "/" in name:
        build.project.mkdir(build.base / os.path.dirname(name))
    build.link(name, str(outside))
    before = tree(outside)
    for script in ("touch /tmp/a /etc/b", f"rm -rf /{name}; ln -s {outside} /{name}", "touch /root/c"):
        build.shell(script)
    build.finish()
    assert tree(outside) == before
    assert not list(cache.iterdir())


def test_links_of_a_layer(build: Build, outside: Path) -> None:
    """Finishing a layer removes and changes nothing where the layer's links lead."""
    script = f"""
    mv /etc /old; ln -s {outside} /etc; mkdir -p /usr; ln -s {outside} /usr/sbin; ln -s {outside}/program /p
    ln -s {outside} /directory; ln -s ../../../../../../../../{outside} /relative
    """
    build.output(script)
    before = tree(outside)
    assert build.finish().status == 0
    assert tree(outside) == before
    assert os.readlink(build.upper / "etc") == str(outside)


def test_a_layer_without_bottom(build: Build) -> None:
    """Directories so deep that no path reaches them are refused in words, not passed by."""
    script = (
        "i=0; while [ $i -lt 700 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done; touch x; chmod 4755 x"
    )
    build.output(script)
    result = build.finish()
    assert result.status == 1 and "deep" in result.err and "Traceback" not in result.err


def test_a_layer_that_is_shut(build: Build) -> None:
    """Modes that shut the layer, its root included, keep neither the next step nor the finish out."""
    build.output("mkdir /shut; touch /shut/program; chmod 4755 /shut/program; chmod 0 /shut; chmod 0 /")
    build.output("true")
    build.next_stage()
    assert build.output("stat -c %a /shut/program") == "755"


def test_nothing_of_the_host(build: Build) -> None:
    """No path of the host is there, not even those that the table of mounts tells."""
    project = build.project
    project.write("secret", "of the workspace")
    project.write(str(project.home / "secret"), "of the home")
    cache, other = build.actor.directory("cache"), build.actor.directory("neighbours-cache")
    project.write(str(other / "secret"), "of another project")
    build.caches = [(str(cache), "/run/coop/apt")]
    names = (project.directory, project.home, build.base, build.upper, build.work, build.scratch, other)
    script = f"""
    for path in {" ".join(str(name) for name in names)} /workspace /home /work /usr/bin; do
        test -e $path && echo $path
    done
    while read -r number parent device root place rest; do
        test "$root" = / || test ! -e "$root" || test -c "$root" || echo $root at $place
    done < /proc/self/mountinfo
    ls /run/coop/apt/..; ls -a /run/coop/apt/../../.. | grep -c .
    ls /proc/1/root/ /proc/1/cwd/ 2> /dev/null
    for name in exe root cwd fd/0 fd/1 fd/3; do readlink /proc/1/$name; done
    ls -A /home /opt /srv /tmp /var/tmp /dev/shm 2> /dev/null | grep secret
    """
    seen = build.output(script + "true")
    allowed = {"apt", "apt.conf", "/null", "/proc/self/mountinfo"}
    found = [line for line in seen.split("\n") if line not in allowed and not line.isdigit()]
    assert found == [], seen


def test_lower_layers_are_not_written(build: Build) -> None:
    """Whatever is written, removed, linked or renamed, the layers below stay byte for byte."""
    build.write("opt/file", "x")
    build.output("echo below > /opt/below; ln /opt/file /opt/link")
    build.next_stage()
    before = [fingerprint(str(layer)) for layer in build.below]
    build.output(
        "echo y >> /opt/file; echo y > /opt/below; ln /bin/busybox /b; rm -r /etc; mv /opt /o; "
        "chmod 777 /bin; chmod 4777 /bin/busybox; touch /bin/busybox; echo z >> /b"
    )
    assert [fingerprint(str(layer)) for layer in build.below] == before


def test_no_terminal(build: Build) -> None:
    """The caller's terminal is out of reach: no stream of it, no controlling terminal."""
    script = """
    test -t 0 || test -t 1 || test -t 2 || echo none
    echo typed > /dev/tty; ls /dev/pts; readlink /proc/self/fd/0
    """
    build.wrap = ("sh", "-c", '"$@" | cat', "sh")
    argv = build.argv(script)
    environment: Any = build.project.environment
    terminal = pexpect.spawn(argv[0], argv[1:], env=environment, timeout=DEADLINE, encoding="utf-8")
    seen = terminal.read()
    terminal.close()
    assert "none" in seen and "/dev/null" in seen and "No such device" in seen, seen
    assert "\r\ntyped" not in seen


def test_signals_stay_inside(build: Build) -> None:
    """A step that kills everything that it can kills itself alone."""
    result = build.shell("kill -9 -1; echo left")
    assert result.status in (0, 137) and "Traceback" not in result.err
    result = build.shell(f"for pid in 1 {os.getpid()}; do kill -9 $pid 2> /dev/null; done; echo left")
    assert result.out == "left\n"


def test_other_ways_to_be_root(build: Build) -> None:
    """Its two capabilities make no mount, no device, no namespace and no writable /proc."""
    for tool in ("mount", "unshare", "nsenter", "losetup", "swapon", "hostname", "chroot", "insmod"):
        if not (build.base / "bin" / tool).is_symlink():
            build.link(f"bin/{tool}", "busybox")
    script = """
    exec 2> /dev/null
    mount -t tmpfs none /opt && echo mounted; mount -o bind / /opt && echo bound
    mount -o remount,rw /proc && echo remounted; unshare -m true && echo unshared
    unshare -U true && echo user; nsenter -t 1 -m true && echo entered; hostname evil && echo named
    echo x > /proc/sys/kernel/hostname && echo written; echo b > /proc/sysrq-trigger && echo pressed
    echo 1 > /proc/1/oom_score_adj && echo scored; cat /proc/1/mem > /dev/null && echo read
    ls /proc/1/map_files | grep .
    cat /proc/kcore | grep . && echo core; mknod /dev/disk b 8 0; test -e /dev/disk && echo disk
    chroot /opt /bin/true && echo nowhere; cd /opt && chroot . ../bin/true && echo out
    true
    """
    build.write("opt/x", "")
    assert build.output(script) == ""


def test_chroot_is_no_way_out(build: Build) -> None:
    """Leaving a changed root by an open directory ends in the sandbox's own root."""
    script = """
    mkdir -p /jail/bin /jail/proc && cp /bin/busybox /jail/bin/
    cd / && chroot /jail /bin/busybox sh -c 'cd ../../../..; /bin/busybox ls -a . | /bin/busybox grep -c .'
    chroot /jail /bin/busybox ls /../../bin
    """
    assert build.output(script).split()[-1] == "busybox"
