"""`coop check` looks at this machine: its back ends, and where the image is."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from tests.imaged import registry as registry
from tests.sandboxes import Project
from tests.unit.rootfs.fakeregistry import FakeRegistry

pytestmark = pytest.mark.native


def found(project: Project, *options: str) -> list[tuple[str, str, int | None, str]]:
    """Return severity, code, line and text of what is found."""
    result = project.coop("check", "--json", *options)
    assert "Traceback" not in result.err, result
    told = json.loads(result.out)
    assert result.status == (0 if told["ok"] else 1)
    return [(item["severity"], item["code"], item["line"], item["message"]) for item in told["diagnostics"]]


def test_a_back_end_that_is_able(project: Project) -> None:
    """Where one can enforce the plan there is nothing to say."""
    project.coopfile("limits.pids = 100\n")
    assert found(project) == []


@pytest.mark.parametrize("reason", ["absent", "isolation", "unable"])
def test_no_back_end(project: Project, reason: str) -> None:
    """An error at its line says what was tried and what helps; --files-only does not look."""
    text = {
        "absent": '[sandbox]\nbackend = "docker"\n',
        "isolation": '[sandbox]\nbackend = "native"\nmin_isolation = "vm"\n',
        "unable": '[sandbox]\nbackend = "native"\n',
    }[reason]
    project.coopfile(text)
    del project.environment["COOP_SANDBOX_BACKEND"]
    if reason == "absent":
        project.environment["DOCKER_HOST"] = f"unix://{project.home}/none.sock"
    elif reason == "unable":  # as where the distribution, or a container, forbids it
        script = 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"'
        inner = ("unshare", "--user", "--map-root-user", "sh", "-c", script, "sh")
        project.unshared = (*project.actor.prefix, *inner)
    ((severity, code, line, message),) = found(project)
    assert (severity, code, line) == ("error", "backend", 2) and "no back end here" in message, message
    assert "help:" in project.coop("check").out
    assert found(project, "--files-only") == []
    project.coopfile(text + 'fallback = "host"\n')
    here = [item for item in found(project) if item[1] == "backend"]
    assert [item[0] for item in here] == ["warning"] and "unsandboxed" in here[0][3]


def test_the_image(project: Project, registry: FakeRegistry) -> None:
    """One that is neither here nor to be had is a warning; one that is either is none."""
    project.coopfile(f'coop = 1\nbase.image = "{registry.address}/team/app:1"\n')
    assert found(project) == []
    project.coopfile(f'coop = 1\nbase.image = "{registry.address}/team/app:2"\n')
    ((severity, code, line, message),) = found(project)
    assert (severity, code, line) == ("warning", "image", 2) and "/team/app:2 is not here" in message
    project.coopfile('coop = 1\nbase.image = "oci-archive:none.tar"\n')
    ((severity, code, line, _),) = found(project)
    assert (severity, code, line) == ("warning", "image", 2)


def test_a_strangers_image_is_not_asked_for(project: Project) -> None:
    """Before it is approved, no server that a Coopfile names hears of it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = threading.Event()

        def listen() -> None:
            try:
                server.accept()[0].close()
                asked.set()
            except OSError:
                pass

        threading.Thread(target=listen, daemon=True).start()
        port = server.getsockname()[1]
        project.coopfile(f'base.image = "127.0.0.1:{port}/team/app:1"\n', allow=False)
        assert found(project) == [] and not asked.is_set()
        project.coopfile(f'base.image = "127.0.0.1:{port}/team/app:1"\n')
        assert [item[1] for item in found(project)] == ["image"] and asked.wait(10)
        server.shutdown(socket.SHUT_RDWR)


def test_a_registry_that_does_not_answer(project: Project) -> None:
    """It is waited for, but not for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        project.coopfile(f'base.image = "127.0.0.1:{port}/team/app:1"\n')
        ((severity, code, _, message),) = found(project)
    assert (severity, code) == ("warning", "image") and "cannot be had now" in message
