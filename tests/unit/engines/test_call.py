"""Calls to engines' command lines: with which environment, and how long and how much."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from coopfile.engines import call
from coopfile.engines.call import Answer, Call, EngineError, ask, first_bytes, own_environment
from coopfile.errors import CoopError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a workspace in it, free of links."""
    (tmp_path / "work/bin").mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    return tmp_path.resolve()


def kept_path(home: Path, *entries: str) -> list[str]:
    """Return what of PATH is kept beside a workspace."""
    given = ":".join(entries).format(home=home)
    kept = own_environment({"PATH": given, "HOME": str(home)}, [f"{home}/work"])["PATH"]
    return kept.split(":") if kept else []


@pytest.mark.parametrize(
    "entry", ["{home}/work", "{home}/work/bin", "{home}/tools/../work/bin", ".", "", "bin"]
)
def test_what_a_sandbox_writes_is_not_on_the_path(home: Path, entry: str) -> None:
    """Nor what depends on the directory that one stands in."""
    assert kept_path(home, entry, "{home}/tools") == [f"{home}/tools"]


def test_links_of_the_path_are_followed_once(home: Path) -> None:
    """One into the workspace, or through it, is dropped; of another the real directory counts."""
    (home / "in").symlink_to("work/bin")
    (home / "work/out").symlink_to(home / "tools")
    (home / "through").symlink_to("work/out")
    (home / "plain").symlink_to("tools")
    assert kept_path(home, "{home}/in", "{home}/work/out", "{home}/through") == []
    assert kept_path(home, "{home}/plain") == [f"{home}/tools"]


@pytest.mark.parametrize("name", ["DOCKER_HOST", "CONTAINER_HOST"])
def test_no_socket_of_a_workspace_is_an_engine(home: Path, name: str) -> None:
    """Neither one in it nor one that a link in it leads to; other addresses are the caller's own."""
    (home / "work/out").symlink_to(home / "tools")
    for path in ("work/x.sock", "work/out/x.sock", "tools/../work/x.sock"):
        with pytest.raises(CoopError, match=f"{name} is unix://"):
            own_environment({name: f"unix://{home}/{path}"}, [f"{home}/work"])
    (home / "link").symlink_to("tools")
    kept = own_environment({name: f"unix://{home}/link/x.sock"}, [f"{home}/work"])
    assert kept[name] == f"unix://{home}/tools/x.sock"
    for value in ("ssh://me@other", "tcp://127.0.0.1:2375"):
        assert own_environment({name: value}, [f"{home}/work"])[name] == value


@pytest.mark.parametrize(
    "written",
    [
        ".docker",
        ".docker/cli-plugins",
        ".config/containers",
        ".config/containers/oci/hooks.d",
        ".local/share/containers/storage",
        ".local/share/docker",
    ],
)
def test_what_engines_are_configured_by_is_not_given(home: Path, written: str) -> None:
    """By default it is below the home, whether it is there or not."""
    with pytest.raises(CoopError, match="tells container engines what to run"):
        own_environment({"HOME": str(home)}, [f"{home}/{written}"])


@pytest.mark.parametrize(
    ("name", "below"),
    [
        ("DOCKER_CONFIG", "cli-plugins"),
        ("DOCKER_CERT_PATH", "x"),
        ("XDG_CONFIG_HOME", "containers"),
        ("XDG_CONFIG_HOME", "containers/registries.conf.d"),
        ("XDG_DATA_HOME", "containers"),
        ("XDG_DATA_HOME", "docker/x"),
        ("XDG_RUNTIME_DIR", "containers"),
    ],
)
def test_nor_where_variables_say_that_it_is(home: Path, name: str, below: str) -> None:
    """What is beside it there may be given."""
    environment = {"HOME": str(home), name: f"{home}/own"}
    with pytest.raises(CoopError, match="tells container engines what to run"):
        own_environment(environment, [f"{home}/own/{below}"])
    if name.startswith("XDG_"):
        assert own_environment(environment, [f"{home}/own/other"])[name] == f"{home}/own"
    with pytest.raises(CoopError, match=f"{name} is "):
        own_environment(environment, [f"{home}/own"])


def test_the_service_managers_business_is_dropped() -> None:
    """Podman would hand it on to containers."""
    given = {"NOTIFY_SOCKET": "/run/x", "LISTEN_FDS": "1", "LISTEN_PID": "2", "LISTEN_FDNAMES": "", "A": "b"}
    assert set(own_environment(given, [])) == {"A", "PATH"}


def test_the_first_bytes_of_what_never_ends() -> None:
    """As many as asked for, exactly, and the call is over."""
    assert first_bytes(("yes",), 100_001) == b"y\n" * 50_000 + b"y"
    assert first_bytes(("printf", "short"), 100) == b"short"


def test_the_first_bytes_of_what_is_silent() -> None:
    """It is given up at its time, and ended."""
    begin = time.monotonic()
    with pytest.raises(EngineError, match=r"`sleep 60` did not answer within 0\.2 s"):
        first_bytes(("sleep", "60"), 1, 0.2)
    assert time.monotonic() - begin < 10


def test_output_in_pieces_leaves_no_process(tmp_path: Path) -> None:
    """What is not read to its end is ended."""
    mark = tmp_path / "pid"
    with Call(("sh", "-c", f"echo $$ >{mark}; exec yes")).output(10) as output:
        assert output.read(4) == b"y\ny\n"
        pid = int(mark.read_text())
        assert os.path.exists(f"/proc/{pid}")
    assert not os.path.exists(f"/proc/{pid}")


def test_an_answer_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up when it has said too much, on either stream, and what says it is ended."""
    monkeypatch.setattr(call, "MOST_ANSWERED", 1 << 20)
    for script in ("exec yes", "exec yes >&2"):
        with pytest.raises(EngineError, match=r"`sh -c` said more than 1 MiB"):
            ask(("sh", "-c", script), 60)


def test_answers() -> None:
    """They are whole, of what reads more than a pipe holds, and closes its streams before it ends."""
    given = b"x" * 300_000
    script = "wc -c; cat >&2; exec >&- 2>&-; sleep 0.2; exit 3"
    assert ask(("sh", "-c", f"tee /dev/stderr | {script}"), 20, None, given) == Answer(
        3, "300000\n", given.decode()
    )
    begin = time.monotonic()
    with pytest.raises(EngineError, match=r"`sh -c` did not answer within 0\.3 s"):
        ask(("sh", "-c", "exec >&- 2>&-; sleep 60"), 0.3)
    assert time.monotonic() - begin < 10
