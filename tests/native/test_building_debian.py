"""Package managers of a real Debian in the sandbox of builds, as root and unprivileged."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.builds import Build
from tests.sandboxes import Actor, Project, Workshop

pytestmark = [pytest.mark.native, pytest.mark.xdist_group("debian")]  # which is unpacked in one process

CONTROL = """Package: coop-service
Version: 1.0
Architecture: all
Maintainer: nobody <nobody@example.org>
Description: what maintainers' scripts do
"""
# Sets an attribute as setcap(8) does: struct vfs_cap_data with cap_net_raw.
SETCAP = """
use strict; my ($file) = @ARGV; my $number = `uname -m` =~ /x86/ ? 188 : 5;
my ($name, $data) = ("security.capability", pack("VVVVV", 0x02000001, 1 << 13, 0, 0, 0));
syscall($number, $file, $name, $data, length $data, 0) == 0 or die "setcap: $!";
my ($other, $value) = ("user.coop", "1");
syscall($number, $file, $other, $value, 1, 0) == 0 or die "setfattr: $!";
$! = 0; $) = "33 33"; $> = 33; die "not another user: $!" if $!;
"""
POSTINST = """#!/bin/sh
set -e
adduser --system --group --home /var/lib/coop-service coop-service
chown -R coop-service:coop-service /var/lib/coop-service
chown root:shadow /usr/bin/coop-tool
chmod 2755 /usr/bin/coop-tool
perl /usr/share/coop-service/setcap.pl /usr/bin/coop-tool
su coop-service -s /bin/sh -c 'touch /var/lib/coop-service/own'
invoke-rc.d coop-service start
"""
SERVICE = """#!/bin/sh
### BEGIN INIT INFO
# Provides: coop-service
# Required-Start:
# Required-Stop:
# Default-Start: 2 3 4 5
# Default-Stop:
### END INIT INFO
touch /started; sleep 1000 &
"""


@pytest.fixture(scope="session")
def unpacked(actor: Actor, debian: Path) -> Path:
    """Return the root file system of a Debian, all of it the actor's."""
    directory = actor.directory("debian")
    done = actor.run(
        *("tar", "-C", str(directory), "--no-same-owner", "--exclude=./dev/*", "-xpf", str(debian))
    )
    assert done.status == 0, done
    return directory


@pytest.fixture
def build(project: Project, unpacked: Path) -> Build:
    """Return a stage on Debian."""
    made = Build(project)
    made.below = [unpacked]
    return made


def repository(build: Build) -> str:
    """Make an apt repository with one package in a layer of its own; return its line for sources.list."""
    tree = build.actor.directory("package")
    for path, content, mode in (
        ("DEBIAN/control", CONTROL, 0o644),
        ("DEBIAN/postinst", POSTINST, 0o755),
        ("etc/init.d/coop-service", SERVICE, 0o755),
        ("usr/bin/coop-tool", "#!/bin/sh\n", 0o755),
        ("usr/share/coop-service/setcap.pl", SETCAP, 0o644),
    ):
        build.project.write(str(tree / path), content, mode)
    package = build.base / "repository/coop-service.deb"
    build.project.mkdir(package.parent)
    argv = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(package)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=60)
    build.actor.own(package)
    data = package.read_bytes()
    fields = f"Filename: ./coop-service.deb\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}"
    build.write("repository/Packages", CONTROL + fields + "\n")
    build.below.append(build.base)
    return "deb [trusted=yes] file:///repository ./"


def test_a_package_that_asks_for_everything(build: Build) -> None:
    """A package with users, set-id bits, file capabilities and a service installs, and nothing starts."""
    source = repository(build)
    script = f"""
    rm -rf /etc/apt/sources.list.d /etc/apt/sources.list
    echo '{source}' > /etc/apt/sources.list
    apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends coop-service
    """
    installed = build.shell(f"({script}) 2>&1")
    assert installed.status == 0, installed
    assert "policy-rc.d denied" in installed.out
    for complaint in ("W:", "warning", "perl:", "not permitted"):
        assert complaint not in installed.out.replace("dpkg: warning: ", ""), installed
    look = "ls /started; id -un coop-service; stat -c '%U %a' /usr/bin/coop-tool /var/lib/coop-service/own"
    assert build.shell(look).out.split("\n")[-4:-1] == ["coop-service", "root 2755", "root 644"]
    tool = build.upper / "usr/bin/coop-tool"
    assert os.listxattr(tool) == ["user.coop"]
    build.next_stage()
    assert build.output("stat -c %a /usr/bin/coop-tool; dpkg --audit", ordinary=True) == "755"
    assert build.shell("ls /usr/sbin/policy-rc.d /started", ordinary=True).out == ""


def test_packages_of_the_mirror(workshop: Workshop, debian: Path) -> None:
    """git and pip come from Debian's mirror for somebody without privileges, and work."""
    actor = workshop.actor("user")
    project = Project(actor)
    try:
        build = Build(project)
        actor.run("tar", "-C", str(build.base), "--no-same-owner", "--exclude=./dev/*", "-xpf", str(debian))
        updated = build.shell("apt-get -o Acquire::Retries=0 update 2>&1", network="host", timeout=60.0)
        if updated.status or "\nErr:" in updated.out or "\nW: Failed" in updated.out:
            pytest.skip(f"the mirror is not reachable: {updated.out.strip()[-300:]}")
        install = "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends git python3-pip"
        installed = build.shell(f"{install} 2>&1", network="host")
        assert installed.status == 0, installed
        build.next_stage()
        wheel(project, build.base / "opt/probe-1.0-py3-none-any.whl")
        script = """
        set -e
        cd /opt && git init -q new && git -C new -c user.name=x -c user.email=x commit -q --allow-empty -m x
        python3 -m pip install --break-system-packages --no-index ./*.whl
        python3 -c 'import probe; print(probe.__file__)'
        """
        assert "/usr/local/lib/python3" in build.output(script)
        assert build.finish().status == 0
    finally:
        project.close()


def wheel(project: Project, path: Path) -> None:
    """Write a wheel with one empty module."""
    project.mkdir(path.parent)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("probe.py", "")
        archive.writestr("probe-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
        archive.writestr(
            "probe-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("probe-1.0.dist-info/RECORD", "")
    project.actor.own(path)
