"""The programs that people fetch with, what they fetch on the lab's internet, and a scan of what is local."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.netlab import FORBIDDEN, HOSTS, INTERNET, LOOPBACK_PORT, PORT


def publish_for_npm(place: Path) -> None:
    """Put a package where npm finds it."""
    place.mkdir()
    about = {"name": "parcel", "version": "1.0.0"}
    with tarfile.open(place / "parcel.tgz", "w:gz") as archive:
        for name, text in (("package.json", json.dumps(about)), ("index.js", "module.exports = 1\n")):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    dist = {"tarball": "http://four.example.org/served/npm/parcel.tgz"}
    document = {
        "name": "parcel",
        "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": {**about, "dist": dist}},
    }
    (place / "parcel").write_text(json.dumps(document))


def publish_for_apt(place: Path) -> None:
    """Put a package where apt finds it."""
    control = place / "parcel" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    about = "Package: parcel\nVersion: 1\nArchitecture: all\nMaintainer: T <t@example.org>\nDescription: x\n"
    control.write_text(about)
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-b", "parcel", "parcel.deb"],
        cwd=place,
        check=True,
        capture_output=True,
        timeout=60,
    )
    data = (place / "parcel.deb").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    (place / "Packages").write_text(f"{about}Filename: ./parcel.deb\nSize: {len(data)}\nSHA256: {digest}\n")


_PROGRAMS = {"curl": "curl", "git": "git", "pip": "python3", "npm": "npm", "apt": "apt-get"}

# Fetches with each tool that is in the sandbox; prints the names of those that have done it.
CLIENTS = r"""
site=http://four.example.org/served; cd /tmp
curl -fsS --max-time 60 $site/plain.txt >text && grep -q text text && echo curl
git clone -q $site/project.git clone && grep -q text clone/file && echo git
/usr/bin/python3 -m pip install -q --no-cache-dir --disable-pip-version-check --index-url $site/simple \
    --trusted-host four.example.org --target lib parcel && grep -q value lib/parcel.py && echo pip
mkdir -p node apt/lists/partial apt/cache/archives/partial
(cd node && npm install --silent --no-audit --no-fund --registry $site/npm parcel </dev/null) &&
    grep -q exports node/node_modules/parcel/index.js && echo npm
echo "deb [trusted=yes] $site/apt ./" >apt/sources; : >apt/status
apt() {
    apt-get -qq -o Dir::Etc::SourceList=/tmp/apt/sources -o Dir::Etc::SourceParts=- -o Dir::State=/tmp/apt \
        -o Dir::State::Lists=lists -o Dir::State::Status=/tmp/apt/status -o Dir::Cache=/tmp/apt/cache \
        -o APT::Sandbox::User=root -o Acquire::Retries=0 "$@"
}
apt update && apt download parcel && ls parcel_1_all.deb >/dev/null && echo apt
"""


def tools() -> list[str]:
    """Return those of CLIENTS' tools that this host has, where sandboxes see them."""
    found = [name for name, program in _PROGRAMS.items() if shutil.which(program, path="/usr/bin:/bin")]
    pip = ["/usr/bin/python3", "-Im", "pip", "--version"]
    if subprocess.run(pip, capture_output=True, timeout=60, check=False).returncode:
        found.remove("pip")
    return found


# Tries all that is local at once, and one of the internet's; prints who has answered.
SCAN = f"""
import socket, time
tried = {{}}
for address in {[*FORBIDDEN, *HOSTS, "127.0.0.1", "::1", INTERNET]}:
    for port in (22, 53, 80, {PORT}, {LOOPBACK_PORT}):
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        made.setblocking(False)
        made.connect_ex((address, port))
        tried[made] = (address, port)
time.sleep(3)
found = []
for one, place in tried.items():
    try:
        one.getpeername()
    except OSError:
        continue
    found.append(place)
print("found:", *found)
""".replace("'", '"')
