"""Whatever a path is called, it stays one string, and means itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coopfile.errors import CoopError
from coopfile.plan.model import Plan, with_leaf
from coopfile.render.facts import Facts
from tests.unit.render.seatbelt.samples import FACTS, HOST, STATE, Rendered, compiled, permissive, rendered

HOSTILE = [
    'a"b',
    "a\\",
    "a\\\\b",
    '\\"',
    '#"',
    "|#",
    "#|",
    "a|#b",
    ";",
    "; comment",
    ")",
    '") (allow default) ("',
    '"))(allow file-write*)(deny file-read* (subpath "/x',
    "(param)",
    '(param "HOME")',
    "a b",
    " ",
    "'",
    "$HOME",
    "{{ tag }}",
    "{% raw %}",
    "[a]",
    "a+b(c)|d.*^$?{2}",
    "é",
    "e\u0301",
    "ß",
    "世界",
    "\U0001f600",
    "\u202e",
    "\u2028",
    "-D",
    "=",
    "x" * 1100,
    '"' * 1100,
    "é" * 550,
]

name = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(
        st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/"), min_size=1, max_size=40
    ).filter(lambda text: text not in (".", "..")),
)


def somewhere(directory: str, text: str = "") -> Rendered:
    """Render a plan with a name in every place that has one."""
    plan: Plan = compiled(text)
    workspace = f"/Users/dev/{directory}/app"
    host = HOST.replace(workspace=workspace, directory=workspace, home=f"/Users/{directory}")
    plan = with_leaf(plan, "files.read", (f"/opt/{directory}",))
    plan = with_leaf(plan, "files.write", (f"/srv/{directory}",))
    plan = with_leaf(plan, "workspace.protect", (f"protected/{directory}",))
    facts = Facts(
        host,
        "darwin",
        kinds={f"/opt/{directory}": "directory", f"/srv/{directory}": "directory"},
        hidden=(f"{workspace}/hidden/{directory}",),
        inputs=(f"/inputs/{directory}",),
        private=(f"/private/{directory}",),
        temporary=(f"/temporary/{directory}",),
    )
    return rendered(plan, facts)


FORMS = {text: len(somewhere("plain", text).profile.forms) for text in ("", permissive(""))}


@settings(max_examples=50, deadline=None)
@given(directory=name, text=st.sampled_from(sorted(FORMS)))
def test_names_stay_data(directory: str, text: str) -> None:
    """A name is whole in one string, adds no form, and is guarded and given as any other."""
    found = somewhere(directory, text)
    workspace = found.launch.host.workspace
    assert len(found.profile.forms) == FORMS[text]
    strings = set(found.profile.strings)
    assert {
        workspace,
        f"/opt/{directory}",
        f"/srv/{directory}",
        f"{workspace}/protected/{directory}",
        f"{workspace}/hidden/{directory}",
        f"/inputs/{directory}",
        f"/private/{directory}",
        f"/temporary/{directory}",
    } <= strings
    assert found.may("file-write-data", f"{workspace}/x")
    assert found.may("file-read-data", f"{workspace}/protected/{directory}/x")
    assert not found.may("file-write-data", f"{workspace}/protected/{directory}/x")
    assert not found.may("file-read-data", f"{workspace}/hidden/{directory}/x")
    assert not found.may("file-write-data", f"/opt/{directory}/x")
    assert found.may("file-write-data", f"/srv/{directory}/x")
    assert not found.may("file-read-data", f"/private/{directory}/x")
    assert not found.may("file-write-unlink", f"{workspace}/protected")


@settings(max_examples=50, deadline=None)
@given(
    glob=st.sampled_from(
        [text for text in HOSTILE if not set(text) & set("\\[]{}?*/") and text.strip() == text]
    )
)
def test_globs_stay_data(glob: str) -> None:
    """A glob without wildcards hides what it names, in any directory, and nothing else."""
    plan = with_leaf(compiled(), "files.hide", (f"**/{glob}",))
    found = rendered(plan)
    workspace = found.launch.host.workspace
    assert not found.may("file-read-data", f"{workspace}/{glob}")
    assert not found.may("file-read-data", f"{workspace}/a/{glob}/b")
    assert found.may("file-read-data", f"{workspace}/a{glob}")
    assert found.may("file-read-data", f"{workspace}/{glob}a")


@pytest.mark.parametrize("character", ["\0", "\n", "\r", "\t", "\x1b", "\x7f", "\x85", "\udc80"])
@pytest.mark.parametrize("place", ["workspace", "hidden", "private", "mount", "protect"])
def test_control_characters(character: str, place: str) -> None:
    """A path with a control character, or one that is not UTF-8, is refused wherever it comes from."""
    path = f"/Users/dev/a{character}b"
    plan, facts = compiled(), FACTS
    if place == "workspace":
        facts = FACTS.replace(host=HOST.replace(workspace=path, directory=path))
    elif place == "mount":
        plan = with_leaf(plan, "files.read", (path,))
        facts = FACTS.replace(kinds={path: "file"})
    elif place == "protect":
        plan = with_leaf(plan, "workspace.protect", (f"a{character}b",))
    else:
        facts = FACTS.replace(**{place: (path,)})
    with pytest.raises(CoopError, match="control character"):
        rendered(plan, facts)


@pytest.mark.parametrize("path", ["/a//b", "/a/./b", "/a/../b", "/a/", "//a", "a"])
def test_paths_that_would_match_nothing(path: str) -> None:
    """A path that is not in the kernel's form is refused: its rule would be dead."""
    with pytest.raises(CoopError, match="not a real path"):
        rendered(compiled(), FACTS.replace(private=(STATE, path)))
