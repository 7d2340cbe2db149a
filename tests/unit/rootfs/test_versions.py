"""Versions of installed packages, out of what the managers list."""

from __future__ import annotations

import pytest

from coopfile.rootfs.versions import parse, query

CASES = [
    ("apt", ("jq=1.6*", "libc6:amd64", "g++", "absent"), "jq 1.6-2.1+deb12u1\nlibc6 2.36-9\ng++ 4:12.2.0-3\n",
     {"jq": "1.6-2.1+deb12u1", "libc6": "2.36-9", "g++": "4:12.2.0-3"}),
    ("apk", ("git", "so:libc.musl-x86_64.so.1"), "musl-1.2.5-r9\ngit-2.47.2-r0\ngit-perl-2.47.2-r0\n",
     {"git": "2.47.2-r0"}),
    ("dnf", ("gcc", "@development-tools"), "gcc 14.2.1-7.fc41\npackage x is not installed\n",
     {"gcc": "14.2.1-7.fc41"}),
    ("pip", ("uvicorn[standard]>=0.30,!=0.31", "Zope_Interface"), "uvicorn==0.32.0\nzope.interface==7.1\n",
     {"uvicorn": "0.32.0", "Zope_Interface": "7.1"}),
    ("npm", ("@scope/pkg@^1.2", "typescript"),
     '{"dependencies": {"@scope/pkg": {"version": "1.3.0"}, "typescript": {"version": "5.6.3"}, "npm": {}}}',
     {"@scope/pkg": "1.3.0", "typescript": "5.6.3"}),
    ("cargo", ("ripgrep@14.1.1",), "ripgrep v14.1.1:\n    rg\nother v1.0.0 (/src):\n    other\n",
     {"ripgrep": "14.1.1"}),
]  # fmt: skip


@pytest.mark.parametrize(("manager", "packages", "text", "versions"), CASES, ids=[case[0] for case in CASES])
def test_listed(manager: str, packages: tuple[str, ...], text: str, versions: dict[str, str]) -> None:
    """The packages that were asked for are found by their names, the others are left out."""
    assert parse(manager, packages, text) == versions


@pytest.mark.parametrize("manager", [case[0] for case in CASES])
@pytest.mark.parametrize(
    "text",
    ["", "\0", "git", "git ", "git \x1b[31m1", "git 1\u202e", "{", '{"dependencies": [1]}', "[" * 100_000,
     "git-" + "9" * 200 + "-r0\ngit==" + "9" * 200 + "\ngit " + "9" * 200],
    ids=repr,
)  # fmt: skip
def test_hostile_lists(manager: str, text: str) -> None:
    """Nothing but short words comes out of what an image says, and nothing breaks."""
    assert parse(manager, ("git",), text) == {}


def test_a_name_is_no_option_and_no_command() -> None:
    """What is asked for is quoted."""
    assert query("apt", ("a;b",)) == "dpkg-query --show '--showformat=${Package} ${Version}\\n' 'a;b'"
