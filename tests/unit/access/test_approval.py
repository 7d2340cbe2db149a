"""What a project's files widen has to be approved, once per content."""

from __future__ import annotations

import json
import os
import shlex
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coopfile.access import approval
from coopfile.cli.main import main
from coopfile.compiling import Compiled, Request, compile_project
from coopfile.find import approvals
from coopfile.language.directions import file_levels

WIDE = '[network]\nmode = "host"\n[files]\nread = ["~/.gitconfig"]\n'


def _compile(project: Path, text: str | None = None, **more: Any) -> Compiled:
    if text is not None:
        (project / "Coopfile").write_text(text)
    return compile_project(Request(directory=str(project), **more))


def _open(compiled: Compiled, records: Path) -> list[str]:
    return [change.describe() for change in approval.unapproved(compiled, str(records))]


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Return where approvals are recorded; nothing is there yet."""
    return tmp_path / "state" / "approvals"


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[limits]\nmemory = "64m"\n',
        '[files]\nhide = [".env"]\n',
        '[env]\nA = "b"\n',
        '[agent]\ncommand=["x"]\n',
    ],
)
def test_narrower_or_different_needs_nothing(project: Path, records: Path, text: str) -> None:
    """A Coopfile that gives no more than the defaults is nobody's business."""
    assert _open(_compile(project, text), records) == []


def test_widening_is_listed_with_its_lines(project: Path, records: Path) -> None:
    """Every widened value is named, with the line that widens it."""
    compiled = _compile(project, WIDE)
    assert _open(compiled, records) == [
        "widens  files.read: + ~/.gitconfig",
        "widens  network.mode: none → host",
    ]
    error = approval.ApprovalError(compiled, approval.unapproved(compiled, str(records)))
    assert "(Coopfile:2)" in error.message and "(Coopfile:4)" in error.message
    assert error.remedy is not None and f"coop allow -C {project}" in error.remedy


@pytest.mark.parametrize("layer", ["user", "command line", "environment"])
def test_the_readers_own_layers_need_no_approval(
    project: Path, records: Path, layer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the reader writes in their own file, options or environment is approved by being theirs."""
    (project / "Coopfile").write_text("")
    more: dict[str, Any] = {}
    if layer == "user":
        own = tmp_path / "config" / "coop"
        own.mkdir(parents=True)
        (own / "Coopfile").write_text(WIDE)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    elif layer == "environment":
        monkeypatch.setenv("COOP_NETWORK_MODE", "host")
    else:
        more["assignments"] = ("network.mode=host",)
    compiled = _compile(project, **more)
    assert compiled.plan.network.mode == "host"
    assert _open(compiled, records) == []


def test_an_approval_covers_the_content_and_what_is_narrower(project: Path, records: Path) -> None:
    """After an approval the same plan and narrower ones pass; a wider one shows the difference only."""
    approval.approve(_compile(project, WIDE), str(records))
    assert _open(_compile(project), records) == []
    assert _open(_compile(project, '[network]\nmode = "veth"\n'), records) == []
    wider = WIDE.replace('"]', '", "~/.ssh"]')
    assert _open(_compile(project, wider), records) == ["widens  files.read: + ~/.ssh"]


EDITS = {
    "a read-only exception goes": (
        '[files]\nwrite = ["~/a"]\nread = ["~/a/secret"]\n',
        '[files]\nwrite = ["~/a"]\n',
        "widens  files.read: - ~/a/secret",
    ),
    "another profile": (
        'sandbox.profile = "./a.sb"\n',
        'sandbox.profile = "./b.sb"\n',
        "widens  sandbox.profile: restrictive → ./b.sb",
    ),
    "a package of somebody else's": (
        'packages.npm = ["lodash"]\n',
        'packages.npm = ["lodash", "lodash/x"]\n',
        "widens  packages.npm: + lodash/x",
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_that_widens_is_shown(project: Path, records: Path, edit: str) -> None:
    """Whatever gives more than what was approved is asked about, and nothing is once that is approved."""
    before, after, shown = EDITS[edit]
    approval.approve(_compile(project, before), str(records))
    compiled = _compile(project, after)
    assert _open(compiled, records) == [shown]
    assert "Coopfile:" in str(approval.ApprovalError(compiled, approval.unapproved(compiled, str(records))))
    approval.approve(compiled, str(records))
    assert _open(compiled, records) == []


def test_what_the_reader_gives_is_not_approved_for_the_project(project: Path, records: Path) -> None:
    """What an option gave when something else was approved, the project itself has no leave to ask for."""
    given = ("network.mode=host", 'files.read=["~/.ssh"]', "limits.cpus=1")
    approval.approve(_compile(project, 'limits.memory = "4g"\n', assignments=given), str(records))
    assert _open(_compile(project), records) == []
    asked = 'limits.memory = "4g"\nnetwork.mode = "host"\nfiles.read = ["~/.ssh"]\n'
    assert _open(_compile(project, asked), records) == [
        "widens  files.read: + ~/.ssh",
        "widens  network.mode: none → host",
    ]


ON_HOST = '[env]\nLD_PRELOAD = "./evil.so"\n[agent]\ncommand = ["./evil"]\n[limits]\nmemory = "4g"\n'


def test_how_commands_run_on_the_host_is_to_be_approved(
    project: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where commands may run on the host itself, a project's variables and its agent need approval, too."""
    approval.approve(_compile(project, ON_HOST), str(records))
    assert _open(_compile(project), records) == []
    monkeypatch.setenv("COOP_SANDBOX_FALLBACK", "host")
    compiled = _compile(project)
    assert _open(compiled, records) == [
        'widens  agent.command: [] → ["./evil"]',
        "widens  env: + LD_PRELOAD=./evil.so",
    ]
    approval.approve(compiled, str(records))
    assert _open(_compile(project), records) == []
    other = ON_HOST.replace("evil.so", "worse.so")
    assert _open(_compile(project, other), records) == ["widens  env: + LD_PRELOAD=./worse.so"]
    assert _open(_compile(project, '[limits]\nmemory = "4g"\n'), records) == []


def test_an_approval_for_nobody_gives_no_trust(
    project: Path, records: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A project that takes the terminal from who has it is asked about, though its plan was approved."""
    own = tmp_path / "config" / "coop"
    own.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (own / "Coopfile").write_text(
        '[[users]]\nname = "ann"\ntrust = "familiar"\nmatch = ["terminal:default"]\n'
    )
    text = 'limits.memory = "4g"\n'
    approval.approve(_compile(project, text), str(records))
    text += '[[users]]\nname = "ann"\nmatch = ["x:y"]\n'
    found = _open(_compile(project, text, identity="terminal:default"), records)
    assert "widens  access.trust: familiar → owner" in found


def test_a_name_is_not_taken_for_an_option(project: Path, records: Path) -> None:
    """Approving a directory "x for ann" approves nothing for the user ann of the directory x."""
    other = project.parent / f"{project.name} for ann"
    other.mkdir()
    approval.approve(_compile(other, WIDE), str(records))
    assert _open(_compile(other), records) == []
    users = '[[users]]\nname = "ann"\nmatch = ["x:ann"]\n'
    assert len(_open(_compile(project, WIDE + users, identity="x:ann"), records)) == 2


def test_the_command_to_approve_can_be_pasted(project: Path) -> None:
    """The remedy names everything that the approval is for, quoted for a shell."""
    place = project.parent / "my shop"
    place.mkdir()
    (place / "a;b").write_text(WIDE)
    compiled = _compile(place, identity="x:ann'", place="group", file="a;b")
    remedy = approval.ApprovalError(compiled, approval.widened(compiled)).remedy or ""
    words = shlex.split(remedy.partition("coop allow ")[2])
    assert words == ["-C", str(place), "-f", "a;b", "--as", "x:ann'", "--place", "group"]


SPELLINGS = [
    ('files = { write = ["~/a"], read = ["HOME/a/s"] }', '["~/a/s"]', "files.write: + ~/a/s"),
    ('files = { write = ["~/a"], read = ["HOME/a/s"] }', '["~/a/s/f"]', "files.write: + ~/a/s/f"),
    ('files = { write = ["HOME/a"], read = ["~/a/s"] }', '["HOME/a/s/f"]', "files.write: + HOME/a/s/f"),
    ('files = { read = ["HOME/a"] }', '["~/a"]', "files.write: + ~/a"),
    ('files = { write = ["HOME/a"] }', '["~/a", "~/a/b"]', None),
    ('files = { write = ["~/a"], read = ["HOME/a/s"] }', '["HOME/a/t"]', None),
]


@pytest.mark.parametrize(("own", "asked", "shown"), SPELLINGS)
def test_however_a_path_is_spelled(
    project: Path,
    records: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    own: str,
    asked: str,
    shown: str | None,
) -> None:
    """What the reader keeps read-only under one name of a path, a project does not open under the other."""
    home = tmp_path / "home"
    place = home / ".config" / "coop"
    place.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    (place / "Coopfile").write_text(own.replace("HOME", str(home)))
    compiled = _compile(project, f"files.write = {asked}\n".replace("HOME", str(home)))
    expected = [] if shown is None else [f"widens  {shown}".replace("HOME", str(home))]
    assert _open(compiled, records) == expected
    approval.approve(compiled, str(records))
    assert _open(compiled, records) == []


LISTS = st.lists(st.sampled_from(["~/a", "~/a/b", "~/a/b/c", "~/b"]), max_size=3, unique=True)
FILES = st.fixed_dictionaries({"read": LISTS, "write": LISTS})
PROBES = ("~/a/x", "~/a/b/x", "~/a/b/c/x", "~/b/x")


def _files(values: dict[str, list[str]]) -> str:
    return f"files.read = {json.dumps(values['read'])}\nfiles.write = {json.dumps(values['write'])}\n"


@given(own=FILES, first=FILES, then=FILES)
@settings(max_examples=60, deadline=None)
def test_files_are_asked_about_exactly_when_they_give_more(
    own: dict[str, list[str]], first: dict[str, list[str]], then: dict[str, list[str]]
) -> None:
    """An edit is asked about if and only if it gives a path more than the reader and what they approved."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        home, project, records = (Path(place, name) for name in ("home", "home/shop", "records"))
        (home / "config" / "coop").mkdir(parents=True)
        project.mkdir()
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        (home / "config" / "coop" / "Coopfile").write_text(_files(own))
        before = _compile(project, _files(first))
        approval.approve(before, str(records))
        assert _open(before, records) == []
        after = _compile(project, _files(then))
        plans = [_compile(project, "").plan, before.plan, after.plan]
        tells = [file_levels(plan.files.read, plan.files.write) for plan in plans]
        levels = [[tell(path) for path in PROBES] for tell in tells]
        gains = any(now > max(reader, known) for reader, known, now in zip(*levels, strict=True))
        _compile(project, _files(then))
        assert bool(approval.unapproved(after, str(records))) == gains


MANY = 5_000


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("network.allow = [{}]", '"*.h{}.example:443"'),
        ("files.read = [{}]", '"~/d{}/x"'),
        ("files.write = [{}]", '"/opt/d{}/x"'),
        ("network.publish = [{}]", '"{}"'),
        ("env = {{{}}}", 'A{} = {{ host = "B" }}'),
        ("packages.apt = [{}]", '"p{}"'),
    ],
)
def test_a_file_of_a_thousand_lines_is_shown_at_once(
    project: Path, records: Path, text: str, last: str
) -> None:
    """The time that it takes grows as the file does, and not as its square: nobody is kept waiting by it."""
    items = ", ".join(last.format(number) for number in range(1, MANY + 1))
    compiled = _compile(project, text.format(items) + "\n")
    changes = approval.unapproved(compiled, str(records))
    assert len(approval.describe(compiled, changes)) == MANY
    approval.approve(compiled, str(records))
    assert _open(compiled, records) == []


def test_the_local_file_is_the_projects_too(project: Path, records: Path) -> None:
    """Coopfile.local lies in the workspace, where anything may have written it."""
    (project / "Coopfile.local").write_text(WIDE)
    assert len(_open(_compile(project, ""), records)) == 2


def test_trust_is_something_to_approve(project: Path, records: Path) -> None:
    """A project that trusts somebody gives them commands to run: that is shown, for that user only."""
    text = '[[users]]\nname = "bob"\ntrust = "full"\nmatch = ["signal:1"]\n'
    compiled = _compile(project, text, identity="signal:1")
    assert "widens  access.trust: public → full" in _open(compiled, records)
    approval.approve(compiled, str(records))
    assert _open(compiled, records) == []
    assert _open(_compile(project), records) == []
    stranger = text + '[[users]]\nname = "eve"\ntrust = "full"\nmatch = ["signal:2"]\n'
    assert _open(_compile(project, stranger, identity="signal:2"), records) != []


def test_an_override_of_the_projects_is_not_the_readers(project: Path, records: Path) -> None:
    """A user's override counts as the layer of the file that it stands in."""
    text = (
        '[[users]]\nname = "bob"\ntrust = "full"\nmatch = ["signal:1"]\n'
        '[users.override]\nnetwork.mode = "host"\n'
    )
    found = _open(_compile(project, text, identity="signal:1"), records)
    assert "widens  network.mode: none → host" in found


def test_records_of_others_and_damaged_ones_do_not_count(project: Path, records: Path) -> None:
    """A record that somebody else could have written, or that is cut short, is none."""
    compiled = _compile(project, WIDE)
    approval.approve(compiled, str(records))
    (path,) = records.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o666)
    assert _open(compiled, records)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-10])
    assert _open(compiled, records)
    path.unlink()
    path.symlink_to("/dev/zero")
    assert _open(compiled, records)


def test_allow_list_revoke(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verb shows, approves, lists and revokes; --show says by its status whether anything is open."""
    (project / "Coopfile").write_text(WIDE)
    assert main(["allow", "--show"]) == 1
    assert "network.mode: none → host" in capsys.readouterr().out
    assert main(["allow"]) == 0
    assert capsys.readouterr().out.endswith("approved\n")
    assert main(["allow", "--show"]) == 0
    assert main(["allow", "--list"]) == 0
    assert str(project) in capsys.readouterr().out
    assert main(["allow", "--revoke"]) == 0
    assert main(["allow", "--show"]) == 1
    capsys.readouterr()
    assert main(["allow", "--revoke", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"revoked": False}


@pytest.mark.parametrize("argv", [["allow"], ["allow", "--list"], ["allow", "--revoke"]])
def test_where_nothing_can_be_recorded(
    project: Path,
    argv: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """That the directory of approvals is none, or somebody else's, is told in words."""
    (project / "Coopfile").write_text(WIDE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    place = Path(approvals(os.environ))
    place.parent.mkdir(parents=True)
    place.write_text("")
    assert main(argv) == 125
    assert f"{place}: " in (told := capsys.readouterr().err) and "XDG_STATE_HOME" in told


def test_run_refuses_without_a_terminal(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nobody can be asked, a run that needs an approval ends with 125 and names the command."""
    (project / "Coopfile").write_text(WIDE)
    assert main(["run", "--", "true"]) == 125
    error = capsys.readouterr().err
    assert "network.mode: none → host" in error and "coop allow" in error
    assert not os.path.exists(project / ".git")
