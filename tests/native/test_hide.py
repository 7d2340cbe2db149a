"""files.hide: what nobody inside sees, wherever it is in the workspace."""

from __future__ import annotations

import os

import pytest

from tests.sandboxes import Project

pytestmark = pytest.mark.native

SECRET = "unguessable-4711"


def hide(project: Project, *globs: str) -> None:
    """Write a Coopfile that hides some globs."""
    project.coopfile(f"[files]\nhide = [{', '.join(repr(glob) for glob in globs)}]\n")


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        (".env", ".env"),
        ("**/.env*", ".env"),
        ("**/.env*", "a/b/.env.local"),
        ("*.pem", "key.pem"),
        ("keys/*.pem", "keys/a.pem"),
        ("a/**/secret", "a/secret"),
        ("a/**/secret", "a/b/c/secret"),
        ("**/*[0-9].key", "x/id7.key"),
        ("secrets", "secrets/deep/file"),
        ("secrets/**", "secrets/deep/file"),
        ("**/se?rets", "a/secrets/file"),
        ("with space", "with space"),
        ("naïve", "naïve"),
    ],
)
def test_hidden(project: Project, glob: str, path: str) -> None:
    """What a glob names cannot be read, changed, moved or removed, and its neighbours can be read."""
    project.write(path, SECRET)
    project.write("neighbour", "seen")
    hide(project, glob)
    script = """
f=$1; top=${f%%/*}
cat "$f"; cp "$f" copy; ln "$f" link; dd if="$f" bs=1; mv "$f" moved; chmod 777 "$f"
echo x > "$f"; rm -f "$f"; mv "$top" away; grep -r unguessable . ; cat neighbour
"""
    result = project.run("sh", "-c", script, "sh", path)
    assert SECRET not in result.out + result.err
    assert "seen" in result.out
    assert (project.directory / path).read_text() == SECRET


@pytest.mark.parametrize(
    ("glob", "path"), [("*.pem", "a/key.pem"), (".env", "a/.env"), ("a/*", "a/b/c/d"), ("?", "ab")]
)
def test_not_hidden(project: Project, glob: str, path: str) -> None:
    """A glob without ``**`` stays in its directory, and a name has to match whole."""
    project.write(path, "seen")
    if glob == "a/*":
        glob = "a/*/x"
    hide(project, glob)
    assert project.run("cat", path).out == "seen"


def test_hidden_directory(project: Project) -> None:
    """A hidden directory has nothing in it, whoever asks, and nothing can be put there."""
    project.write("private/file", SECRET)
    hide(project, "private")
    result = project.shell(
        "ls -A private; cat private/file; cd private; echo x > private/new; rm -rf private; ls -d private"
    )
    assert result.out == "private\n"
    assert [path.name for path in (project.directory / "private").iterdir()] == ["file"]


def test_missing_is_nothing(project: Project) -> None:
    """A glob that matches nothing changes nothing, and a file made later is the command's own."""
    hide(project, "**/.env", "absent")
    assert project.output("echo x > .env; cat .env") == "x"


def test_link_to_a_secret(project: Project) -> None:
    """A matching link stands for what it leads to inside the workspace."""
    project.write("store/real", SECRET)
    project.link(".env", "store/real")
    hide(project, ".env")
    assert SECRET not in project.shell("cat .env store/real").out


def test_link_out_of_the_workspace(project: Project) -> None:
    """A matching link that leads out of the workspace leads nowhere inside anyway."""
    outside = project.home / "secret"
    outside.write_text(SECRET)
    project.link(".env", str(outside))
    hide(project, ".env")
    result = project.shell("cat .env; echo done")
    assert result.out == "done\n"


def test_name_of_a_hidden_link(project: Project) -> None:
    """A broken link that matches does not keep the sandbox from starting."""
    project.link(".env", "nowhere")
    hide(project, "**/.env*")
    assert project.shell("echo started").out == "started\n"


def test_hidden_behind_links_of_directories(project: Project) -> None:
    """A secret is hidden also when the command comes to it through another link."""
    project.write("real/.env", SECRET)
    project.link("alias", "real")
    hide(project, "**/.env")
    assert SECRET not in project.shell("cat real/.env alias/.env; cd alias; cat .env").out


def test_hidden_and_protected(project: Project) -> None:
    """What is both hidden and protected is hidden."""
    project.write(".envrc", SECRET)
    hide(project, "**/.env*")
    assert SECRET not in project.shell("cat .envrc").out
    assert (project.directory / ".envrc").read_text() == SECRET


def test_hidden_through_another_mount(project: Project) -> None:
    """A secret is hidden too where files.read shows the directory that holds the workspace."""
    project.write("deep/.env", SECRET)
    project.coopfile(f'[files]\nread = ["{project.directory.parent}"]\nhide = ["**/.env"]\n')
    result = project.shell(f"cat {project.directory}/deep/.env deep/.env; cat {project.directory}/Coopfile")
    assert SECRET not in result.out
    assert "hide" in result.out


def test_hidden_file_named_in_read(project: Project) -> None:
    """Naming a hidden file in files.read does not bring it back."""
    project.write(".env", SECRET)
    project.coopfile(f'[files]\nread = ["{project.directory}/.env"]\nhide = [".env"]\n')
    result = project.shell(f"cat {project.directory}/.env")
    assert result.status == 125 and SECRET not in result.out
    assert "hidden" in result.err


def test_many(project: Project) -> None:
    """Some hundred hidden files are hidden like one."""
    for number in range(300):
        project.write(f"d{number % 10}/f{number}.key", SECRET)
    hide(project, "**/*.key")
    assert project.output("cat d*/f* 2>/dev/null | wc -c; ls d*/f* | wc -l").split() == ["0", "300"]


def test_workspace_root_of_globs(project: Project) -> None:
    """Globs count from the workspace's root, wherever the caller stands."""
    project.write("a/.env", SECRET)
    project.write("a/b/file", "seen")
    hide(project, "a/.env")
    assert SECRET not in project.shell("cat ../.env", cwd=project.directory / "a/b").out


def test_the_error(project: Project) -> None:
    """Who asks for a hidden file is told "permission denied", not that it is missing."""
    project.write(".env", SECRET)
    project.write("secrets/x", SECRET)
    hide(project, ".env", "secrets")
    result = project.shell("cat .env; ls secrets")
    if project.actor.uid != 0:
        assert result.err.count("Permission denied") == 2, result
    assert SECRET not in result.out


def test_hidden_below_protected(project: Project) -> None:
    """The way to what is hidden is as read-only as all else that is protected."""
    project.write("kept/way/secret", "SECRET")
    project.write("kept/way/file", "good")
    project.coopfile('[workspace]\nprotect = ["kept"]\n[files]\nhide = ["kept/way/secret"]\n')
    result = project.shell(
        "cat kept/way/secret; echo evil >kept/way/file; touch kept/way/new; mv kept/way kept/w"
    )
    assert result.out == ""
    assert (project.directory / "kept/way/file").read_text() == "good"
    assert sorted(os.listdir(project.directory / "kept/way")) == ["file", "secret"]
