"""All tests of the proxy are run with epoll, and with what there is instead on other systems."""

from __future__ import annotations

import pytest

from coopfile.proxy import epolled, loop, polled

_USING_IT = ("test_loop", "test_published", "test_server")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test of what uses the loop twice."""
    if metafunc.module.__name__.rpartition(".")[2] in _USING_IT:
        metafunc.fixturenames.append("watcher")
        metafunc.parametrize("watcher", [epolled, polled], ids=["epoll", "poll"], indirect=True)


def end_parked(stopped: loop.Loop) -> None:
    """End what a loop has left parked that was stopped, so that each task closes its own sockets.

    So it does what was woken when the loop stopped, and has had no turn since. Else the collector may find
    a socket before the task that would close it, and Python complains of that in whatever test it comes to.
    """
    for task in [*stopped._waiting, *(task for task, _ in stopped._ready)]:
        task.coroutine.close()


@pytest.fixture
def watcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have loops wait with the given module's watcher."""
    monkeypatch.setattr(loop, "Watcher", request.param.Watcher)
