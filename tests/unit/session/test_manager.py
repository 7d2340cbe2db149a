"""`coopfile.SessionManager`: one session for each key."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coopfile
from coopfile.errors import CoopError
from coopfile.plan.sessions import is_name
from coopfile.session.manager import name_of
from tests.unit.session.host import HostBackend
from tests.unit.session.test_session import in_child


def test_each_key_has_its_session(plan: coopfile.Plan, host: HostBackend) -> None:
    """Started when it is first used; at the end of the block all are ended, and what they keep is kept."""
    with coopfile.SessionManager(plan, backend=host) as manager:
        assert manager.get("a") is manager.get("a")
        assert host.live == {}
        assert manager.exec("a", ["echo", "1"], environment={"X": "1"}).text == "1\n"
        assert manager.shell("b", "echo $X", environment={"X": "2"}).text == "2\n"
        manager.get("never used")
        assert manager.keys() == ("a", "b", "never used")
        assert list(host.live) == [name_of("key", "a"), name_of("key", "b")]
        assert all(spec.leased for spec in host.opened)
    assert (host.live, len(host.stopped), host.removed) == ({}, 2, [])


def test_a_key_is_destroyed(plan: coopfile.Plan, host: HostBackend) -> None:
    """Alone, whoever started its session; a later command starts it again."""
    manager = coopfile.SessionManager(plan, backend=host)
    manager.exec("a", ["true"])
    manager.exec("b", ["true"])
    host.told = ("something",)
    assert manager.destroy("a") == ("something",)
    assert list(host.live) == [name_of("key", "b")]
    assert manager.keys() == ("b",)
    manager.exec("a", ["true"])
    coopfile.SessionManager(plan, backend=host).destroy("a", forget=True)
    assert list(host.live) == [name_of("key", "b")]
    assert len(host.removed) == 1
    assert manager.destroy_all() == ("something", "something")
    assert host.live == {}


def test_sessions_may_go_on(plan: coopfile.Plan, host: HostBackend) -> None:
    """Without a lease the next manager finds them."""
    with coopfile.SessionManager(plan, backend=host, leased=False, ttl=5, prefix="bot") as manager:
        manager.exec("a", ["true"])
    with coopfile.SessionManager(plan, backend=host, leased=False, ttl=5, prefix="bot") as manager:
        manager.exec("a", ["true"])
        assert list(host.live) == [name_of("bot", "a")]
        assert [spec.ttl for spec in host.opened] == [5, 5]
        manager.destroy_all()
    assert host.live == {}


def test_all_are_ended_although_one_does_not(plan: coopfile.Plan) -> None:
    """The first failure is told after the last has been tried."""

    class Failing(HostBackend):
        def stop(self, spec: Any) -> tuple[str, ...]:
            super().stop(spec)
            raise CoopError(f"failed {len(self.stopped)}")

    host = Failing()
    manager = coopfile.SessionManager(plan, backend=host)
    for key in "abc":
        manager.exec(key, ["true"])
    with pytest.raises(CoopError, match="failed 1"):
        manager.destroy_all()
    assert (host.live, len(host.stopped)) == ({}, 3)


def test_threads_share_sessions(plan: coopfile.Plan) -> None:
    """Many threads on few keys start each session once."""
    host = HostBackend(slow=0.02)
    with coopfile.SessionManager(plan, backend=host) as manager:
        threads = [
            threading.Thread(target=manager.exec, args=(f"key {number % 3}", ["true"]))
            for number in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(host.opened) == 3


def test_a_forked_child_ends_nothing(plan: coopfile.Plan, host: HostBackend) -> None:
    """Its manager joins the sessions of the parent, and leaves them when it is closed."""
    with coopfile.SessionManager(plan, backend=host) as manager:
        manager.exec("a", ["true"])

        def child() -> object:
            text = manager.exec("a", ["echo", "child"]).text
            manager.close()
            return text, host.stopped, len(host.live)

        assert in_child(child) == "('child\\n', [], 1)"
        assert manager.exec("a", ["echo", "on"]).text == "on\n"
        assert len(host.opened) == 1


@given(st.lists(st.text(max_size=80) | st.sampled_from(["a", "a-", "-a", "A", "a/a"]), unique=True))
def test_every_key_has_a_name_of_its_own(keys: list[str]) -> None:
    """Whatever text it is: one that a session can have, and that no other key has."""
    names = [name_of("key", key) for key in keys]
    assert all(map(is_name, names))
    assert len(set(names)) == len(keys)


def test_names_cannot_be_forged() -> None:
    """A key that is another one's name, or what that begins with, has another name."""
    name = name_of("key", "alice")
    assert name.startswith("key-alice-")
    assert name_of("key", name.removeprefix("key-")) != name
    assert name_of("key-alice", "") != name_of("key", "alice")
    assert is_name(name_of("x" * 16, "\udcff" * 300))


@pytest.mark.parametrize("wrong", [None, 3, b"a"])
def test_keys_are_texts(plan: coopfile.Plan, fake: coopfile.FakeBackend, wrong: Any) -> None:
    """All else is refused with a remedy."""
    with pytest.raises(CoopError, match="is not a text") as caught:
        coopfile.SessionManager(plan, backend=fake).get(wrong)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prefix": ""}, "the prefix"),
        ({"prefix": "-a"}, "the prefix"),
        ({"prefix": "x" * 17}, "the prefix"),
        ({"directory": "/no/such"}, "is not a directory"),
        ({"ttl": -1}, "ttl is -1"),
    ],
)
def test_what_is_wrong_is_said_at_once(plan: coopfile.Plan, options: Any, said: str) -> None:
    """Not with the first key."""
    with pytest.raises(CoopError, match=said):
        coopfile.SessionManager(plan, **options)
