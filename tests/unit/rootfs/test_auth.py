"""Where credentials are found, and for whom."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from coopfile.errors import CoopError
from coopfile.rootfs.auth import Credential, find


def login(user: str, password: str = "secret") -> dict[str, str]:
    """Return what docker login writes."""
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


class Home:
    """A home directory with files of credentials, and a PATH with helpers."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.environment = {"HOME": str(base / "home"), "PATH": str(base / "bin")}

    def write(self, name: str, content: Any) -> Path:
        """Write a file, as JSON unless it is text."""
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def docker(self, content: Any) -> Path:
        """Write docker's own file."""
        return self.write("home/.docker/config.json", content)

    def helper(self, name: str, script: str) -> None:
        """Install a credential helper."""
        path = self.write(f"bin/docker-credential-{name}", f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def find(self, registry: str = "ghcr.io", repository: str = "team/app") -> Credential | None:
        """Find the credential of a repository."""
        return find(registry, repository, self.environment)

    def user(self, registry: str = "ghcr.io", repository: str = "team/app") -> str | None:
        """Return the user of the credential that is found."""
        found = self.find(registry, repository)
        return None if found is None else found.user


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return an empty home directory."""
    return Home(tmp_path)


def test_without_files_there_is_no_credential(home: Home) -> None:
    """Nothing is found where there is nothing, and that is no error."""
    assert home.find() is None
    assert find("ghcr.io", "team/app", {}) is None


def test_the_files_are_read_in_order(home: Home) -> None:
    """$REGISTRY_AUTH_FILE counts alone; then $DOCKER_CONFIG, the session's, the user's, and docker's own."""
    places = {
        "alone": home.write("alone.json", {"auths": {"ghcr.io": login("alone")}}),
        "docker": home.write("docker/config.json", {"auths": {"ghcr.io": login("docker")}}),
        "session": home.write("run/containers/auth.json", {"auths": {"ghcr.io": login("session")}}),
        "user": home.write("home/.config/containers/auth.json", {"auths": {"ghcr.io": login("user")}}),
        "old": home.docker({"auths": {"ghcr.io": login("old")}}),
    }
    home.environment["XDG_RUNTIME_DIR"] = str(home.base / "run")
    assert home.user() == "session"
    home.environment["DOCKER_CONFIG"] = str(home.base / "docker")
    assert home.user() == "docker"
    places["docker"].unlink()
    places["session"].unlink()
    assert home.user() == "user"
    places["user"].unlink()
    assert home.user() is None, "with $DOCKER_CONFIG set ~/.docker does not count"
    del home.environment["DOCKER_CONFIG"]
    assert home.user() == "old"
    home.environment["REGISTRY_AUTH_FILE"] = str(places["alone"])
    assert home.user() == "alone"
    places["alone"].unlink()
    assert home.user() is None, "a file that is named does not stand in for others"


def test_a_file_without_the_registry_leads_to_the_next(home: Home) -> None:
    """Logging in to one registry with podman does not hide docker's login to another."""
    home.write("home/.config/containers/auth.json", {"auths": {"quay.io": login("other")}})
    home.docker({"auths": {"ghcr.io": login("right")}})
    assert home.user() == "right"


def test_the_longest_key_counts(home: Home) -> None:
    """A repository's own login goes before its namespace's, and that before the registry's."""
    home.docker({"auths": {"q.io": login("all"), "q.io/team": login("team"), "q.io/team/app": login("app")}})
    assert home.user("q.io", "team/app") == "app"
    assert home.user("q.io", "team/app/more") == "app"
    assert home.user("q.io", "team/other") == "team"
    assert home.user("q.io", "teammate/app") == "all"
    assert home.user("q.io.evil.example", "team/app") is None


@pytest.mark.parametrize(
    ("key", "registry", "found"),
    [
        ("https://index.docker.io/v1/", "docker.io", True),
        ("index.docker.io", "docker.io", True),
        ("docker.io", "docker.io", True),
        ("https://registry-1.docker.io", "docker.io", True),
        ("https://ghcr.io", "ghcr.io", True),
        ("http://ghcr.io/v2/", "ghcr.io", True),
        ("https://ghcr.io/v1", "ghcr.io", True),
        ("https://ghcr.io:444", "ghcr.io", False),
        ("https://ghcr.io/other", "ghcr.io", False),
        ("https://ghcr.io@evil.example", "ghcr.io", False),
        ("ghcr.io/other", "ghcr.io", False),
        ("https://index.docker.io/v1/", "index.docker.io.example", False),
        ("docker.io", "ghcr.io", False),
        ("localhost:5000", "localhost:5000", True),
        ("localhost:5000", "localhost:5001", False),
        ("127.0.0.1:5000", "localhost:5000", False),
    ],
)
def test_keys_name_one_registry(home: Home, key: str, registry: str, found: bool) -> None:
    """The old spellings of a registry are known; no other registry gets its login."""
    home.docker({"auths": {key: login("user")}})
    assert (home.find(registry, "team/app") is not None) is found


def test_the_forms_of_a_login(home: Home) -> None:
    """A password may have colons; identity and registry tokens go before it."""
    home.docker(
        {
            "auths": {
                "a.io": login("me", "pass:word\0"),
                "b.io": {"username": "me", "password": "plain"},
                "c.io": {**login("00000000-0000-0000-0000-000000000000", ""), "identitytoken": "refresh"},
                "d.io": {"registrytoken": "bearer"},
                "e.io": {},
            }
        }
    )
    assert home.find("a.io") == Credential(str(home.base / "home/.docker/config.json"), "me", "pass:word")
    found = [home.find(name) for name in ("b.io", "c.io", "d.io")]
    assert [(one.password, one.identity, one.bearer) for one in found if one] == [
        ("plain", "", ""),
        ("", "refresh", ""),
        ("", "", "bearer"),
    ]
    assert home.find("e.io") is None


def test_helpers_are_asked_for_their_registry(home: Home, tmp_path: Path) -> None:
    """A helper of the registry goes before what is written, the store after it."""
    home.environment["PATH"] += ":/usr/bin:/bin"
    home.helper("own", f'cat >{tmp_path}/asked; echo \'{{"Username": "helped", "Secret": "s"}}\'')
    home.helper("all", f'cat >{tmp_path}/asked; echo \'{{"Username": "<token>", "Secret": "t"}}\'')
    home.docker(
        {
            "auths": {"ghcr.io": login("written"), "quay.io": login("written"), "gone.io": {}},
            "credHelpers": {"ghcr.io": "own"},
            "credsStore": "all",
        }
    )
    assert home.find("ghcr.io") == Credential("docker-credential-own", "helped", "s")
    assert (tmp_path / "asked").read_text() == "ghcr.io"
    assert home.user("quay.io") == "written"
    assert home.find("gone.io") == Credential("docker-credential-all", identity="t")
    home.find("docker.io", "library/debian")
    assert (tmp_path / "asked").read_text() == "https://index.docker.io/v1/"


def test_a_helper_may_know_nothing(home: Home) -> None:
    """What docker's helpers say for an unknown registry is no error."""
    home.helper("none", "echo credentials not found in native keychain; exit 1")
    home.docker({"credsStore": "none"})
    assert home.find() is None


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo s3cret >&2; echo s3cret; exit 3", "failed with exit status 3"),
        ("echo no json s3cret", "gave no credentials"),
        ('echo \'{"Username": 1, "Secret": "s3cret"}\'', "gave no credentials"),
        ("echo '[]'", "gave no credentials"),
        ("head -c 2000000 /dev/zero", "far too much"),
        ("sleep 60 & sleep 60", "did not answer within"),
    ],
)
def test_helpers_that_fail_are_named_and_not_quoted(
    home: Home, script: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error tells how to try the helper; what it said may be secret."""
    monkeypatch.setattr("coopfile.rootfs.auth._HELPER_SECONDS", 0.3)
    home.environment["PATH"] += ":/usr/bin:/bin"
    home.helper("bad", script)
    home.docker({"credHelpers": {"ghcr.io": "bad"}})
    with pytest.raises(CoopError, match=said) as error:
        home.find()
    assert "docker-credential-bad" in error.value.message
    assert "s3cret" not in error.value.message + str(error.value.remedy)


def test_helpers_come_from_the_path_that_is_given(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The PATH of coop's own environment does not count, nor do names with a slash."""
    home.helper("own", 'echo \'{"Username": "u", "Secret": "s"}\'')
    home.docker({"credHelpers": {"ghcr.io": "own", "quay.io": "../../bin/own"}})
    assert home.user() == "u"
    monkeypatch.setenv("PATH", home.environment["PATH"])
    home.environment["PATH"] = "/nonexistent"
    with pytest.raises(CoopError, match="not installed"):
        home.find()
    with pytest.raises(CoopError, match="can be none"):
        home.find("quay.io")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not a JSON object"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ({"auths": []}, "auths is not an object"),
        ({"credHelpers": "x"}, "credHelpers is not an object"),
        ({"auths": {"ghcr.io": "s3cret"}}, "is not an object"),
        ({"auths": {"ghcr.io": {"auth": "s3cret!"}}}, "is not base64"),
        ({"auths": {"ghcr.io": {"auth": "czNjcmV0"}}}, "no colon"),
        ({"auths": {"ghcr.io": {"auth": 1}}}, "strings"),
    ],
)
def test_files_that_make_no_sense_are_errors_without_their_content(
    home: Home, content: Any, said: str
) -> None:
    """The file is named, its content is not shown."""
    path = home.docker(content)
    with pytest.raises(CoopError, match=said) as error:
        home.find()
    assert str(path) in error.value.message
    assert "s3cret" not in error.value.message


def test_an_empty_file_is_no_error(home: Home) -> None:
    """/dev/null-like files of people who log in nowhere are read as nothing."""
    home.docker("\n")
    assert home.find() is None


def test_a_directory_or_a_pipe_is_an_error(home: Home) -> None:
    """What is not a file is not waited for."""
    path = home.base / "home/.docker/config.json"
    path.mkdir(parents=True)
    with pytest.raises(CoopError, match="not a file"):
        home.find()
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(CoopError, match="not a file"):
        home.find()


def test_a_credential_does_not_show_itself() -> None:
    """Not in a traceback's locals, nor in a message by mistake."""
    assert "s3cret" not in repr(Credential("here", "me", "s3cret", "s3cret", "s3cret"))
