"""Tools beside a session on a container engine: commands run there, files are seen by a native view."""

from __future__ import annotations

import json

from tests.containers.asked import EACH_KIND
from tests.containers.enginelab import EngineSessions
from tests.sandboxes import tree
from tests.toollab import RACE, Tools, log, tools

__all__ = ["tools"]

GUARDS = 'workspace.protect = ["release.sh"]\nfiles.hide = ["**/.env*", "secrets"]\n'

ALL = """
tell("bash", command="pwd; id -u; cat made; echo SEEN > seen; cat .env; touch release.sh; exit 3")
tell("write_file", path="made", content="one two")
tell("edit_file", path="made", old_text="two", new_text="three")
tell("bash", command="cat made")
tell("read_file", path="seen")
tell("read_file", path=".env")
tell("write_file", path="release.sh", content="bad")
tell("write_file", path="secrets/key", content="bad")
"""


@EACH_KIND
def test_every_tool(sessions: EngineSessions, tools: Tools) -> None:
    """Commands and file tools see the same files, under the same rules, and all of it is written down."""
    project = sessions.project
    project.coopfile(GUARDS)
    project.write(".env", "SECRET")
    project.write("release.sh", "good")
    project.write("secrets/key", "SECRET")
    lines = [line.split(" ", 2) for line in tools(ALL).out.splitlines()]
    told = [(error, denied) for error, denied, _ in lines]
    texts = [json.loads(text) for *_, text in lines]
    assert told == [
        ("1", "0"),
        *[("0", "0")] * 4,
        *[("1", "1")] * 3,
    ], texts
    assert "/workspace" in texts[0] and "[exit status 3]" in texts[0] and "SECRET" not in "".join(texts)
    assert (texts[3], texts[4].strip().endswith("SEEN")) == ("one three", True)
    assert "files.hide" in texts[5] and "workspace.protect" in texts[6] and "files.hide" in texts[7]
    assert (project.directory / "release.sh").read_text() == "good"
    calls = [json.loads(line) for line in log(project)]
    assert [entry["tool"] for entry in calls if entry["kind"] == "call"].count("bash") == 2


# Links, directories, FIFOs and files of the same names, by nothing but a shell and its tools.
RACER = r"""
while :; do
  for target in OUTSIDE ../outside secrets .env release.sh .. /proc/1/root /etc; do
    for path in d file e/d; do
      rm -rf "$path"; ln -s "$target" "$path"; rm -rf "$path"; mkdir -p "$path"; echo x > "$path/file"
      ln -s "$target" swap; mv -f swap "$path/file"; rm -rf "$path"; mkfifo "$path"
      rm -rf "$path"; echo x > "$path"
    done
  done
  : > raced
done
"""

LOOP = """
paths = ["d", "d/file", "d/key", "d/.env", "e/d/file", "file", "d/../.env", "d/secret", "d/release.sh"]
call("bash", command="mkdir -p e; sh racer.sh >/dev/null 2>&1 &")
while not os.path.exists("raced"):
    time.sleep(0.01)
told = {True: 0, False: 0}
end = time.monotonic() + SECONDS
while time.monotonic() < end:
    for path in paths:
        for name, arguments in (("read_file", {}), ("write_file", {"content": "TOUCHED"}),
                                ("edit_file", {"old_text": "SECRET", "new_text": "TOUCHED"})):
            result = executor.execute(name, {"path": path, **arguments})
            told[result.error] += 1
            if "SECRET" in result.text or "root:" in result.text:
                print("LEAKED", name, path, result.text)
print(told[True] > 0, told[False] > 0)
"""


@EACH_KIND
def test_links_that_are_swapped(sessions: EngineSessions, tools: Tools) -> None:
    """While a command in the container swaps links, file tools touch and tell nothing outside or guarded."""
    project = sessions.project
    project.coopfile(GUARDS)
    outside = project.mkdir(project.directory.parent / f"{project.directory.name}-outside")
    for name in ("secret", "key", "file", ".env", "passwd", "release.sh"):
        project.write(str(outside / name), "SECRET")
    project.write(".env", "SECRET")
    project.write("secrets/key", "SECRET")
    project.write("release.sh", "good")
    project.write("racer.sh", RACER.replace("OUTSIDE", str(outside)))
    before = tree(outside)
    result = tools(LOOP.replace("SECONDS", str(RACE)))
    assert result.out.splitlines() == ["True True"]
    assert tree(outside) == before
    guarded = [(project.directory / name).read_text() for name in (".env", "secrets/key", "release.sh")]
    assert guarded == ["SECRET", "SECRET", "good"]
