"""The life of `coopfile.Session`: started when used, found again, ended, left alone by forked children."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import coopfile
from coopfile.errors import CoopError
from coopfile.plan.model import Access
from coopfile.session import store, sweep
from coopfile.session.backend import Open
from coopfile.session.container import ContainerLive
from coopfile.session.model import Spec
from coopfile.tools.host import ThisMachine
from tests.unit.session.host import HostBackend

ROOT = Path(coopfile.__file__).parent.parent


def in_child(action: Callable[[], object]) -> str:
    """Return what an action has to say in a forked child that ends as the tests' process would."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which is the point
        pid = os.fork()
    if pid == 0:
        try:
            text = str(action())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


def test_it_starts_when_it_is_used(plan: coopfile.Plan, host: HostBackend) -> None:
    """With the first command, once; at the end of the block nothing is left of it."""
    with coopfile.Session(plan, backend=host) as session:
        assert (session.backend, host.opened) == (None, [])
        session.exec(["true"])
        session.exec(["true"])
        assert session.backend == "host"
        (spec,) = host.opened
        assert (spec.name, spec.leased, spec.plan) == (session.name, True, plan)
    assert [spec.name for spec in host.removed] == [session.name]
    with coopfile.Session(plan, backend=host):
        pass
    assert (len(host.opened), len(host.removed)) == (1, 1)


def test_installed_tools_are_kept_as_the_plan_says(project: Path, host: HostBackend) -> None:
    """With "auto" commands are noted; whoever asks for the end is told, unless nothing is to be kept."""
    plan = coopfile.compile(overrides={"session.commit": "auto"})
    host.told = ("committed",)
    session = coopfile.Session(plan, name="dev", backend=host)
    session.exec(["true"])
    assert session.destroy() == ("committed",)
    assert session.destroy(forget=True) == ()
    coopfile.Session(coopfile.compile(), name="dev", backend=host).exec(["false"])
    assert host.noted == [("true",)]


def test_a_session_that_cannot_be_ended_runs_on(plan: coopfile.Plan) -> None:
    """What cannot be kept is not thrown away; but with the program it ends whatever happens."""

    class Failing(HostBackend):
        def stop(self, spec: Any) -> tuple[str, ...]:
            raise CoopError("cannot be kept")

    host = Failing()
    session = coopfile.Session(plan, backend=host)
    session.exec(["true"])
    live = host.live[session.name]
    with pytest.raises(CoopError, match="cannot be kept"):
        session.destroy()
    assert session.exec(["echo", "on"]).text == "on\n"
    assert (len(host.opened), live.released) == (1, 0)
    with pytest.raises(CoopError, match="cannot be kept"):
        session.close()
    assert live.released == 1
    host.close()


@pytest.mark.parametrize("step", ["open", "stop", "remove"])
def test_what_is_interrupted_is_removed(
    plan: coopfile.Plan, host: HostBackend, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Ctrl-C while a session starts or ends does not keep it from being ended and removed later."""
    done = getattr(host, step)

    def interrupted(spec: Spec) -> object:
        monkeypatch.setattr(host, step, done)
        if step == "open":
            done(spec)
        raise KeyboardInterrupt

    monkeypatch.setattr(host, step, interrupted)
    session = coopfile.Session(plan, backend=host)
    with pytest.raises(KeyboardInterrupt), session:
        session.exec(["true"])
    del session
    gc.collect()
    assert len(host.removed) == 1


def test_a_closed_session_takes_no_commands(plan: coopfile.Plan, host: HostBackend) -> None:
    """It says so; closing it again is nothing."""
    session = coopfile.Session(plan, backend=host)
    session.exec(["true"])
    session.close()
    session.close()
    with pytest.raises(coopfile.SessionError, match="is closed") as caught:
        session.exec(["true"])
    assert caught.value.session == session.name


def test_a_named_session_is_found_again(plan: coopfile.Plan, host: HostBackend) -> None:
    """It goes on when it is closed, until it is destroyed; a later command starts it again."""
    with coopfile.Session(plan, name="dev", backend=host) as session:
        session.exec(["true"])
    again = coopfile.Session(plan, name="dev", backend=host)
    again.exec(["true"])
    assert list(host.live) == ["dev"]
    assert not host.opened[0].leased
    again.destroy()
    assert (list(host.live), len(host.stopped), host.removed) == ([], 1, [])
    again.exec(["true"])
    again.destroy(forget=True)
    assert (list(host.live), len(host.removed)) == ([], 1)
    again.close()


def test_a_leased_session_with_a_name(plan: coopfile.Plan, host: HostBackend) -> None:
    """Who started it ends it and leaves what it keeps; who joined it does not end it."""
    first = coopfile.Session(plan, name="dev", leased=True, backend=host)
    first.exec(["true"])
    with coopfile.Session(plan, name="dev", leased=True, backend=host) as second:
        second.exec(["true"])
    assert list(host.live) == ["dev"]
    first.close()
    assert (list(host.live), len(host.stopped), host.removed) == ([], 1, [])


def test_another_plan_is_refused(plan: coopfile.Plan, fake: coopfile.FakeBackend) -> None:
    """A running session keeps its plan; the error has both digests."""
    fake.answer(["true"])
    coopfile.Session(plan, name="dev", backend=fake).exec(["true"])
    other = coopfile.compile(overrides={"limits.pids": 7})
    with pytest.raises(coopfile.PlanDiffers) as caught:
        coopfile.Session(other, name="dev", backend=fake).exec(["true"])
    assert caught.value.session == "dev"
    assert caught.value.running != caught.value.asked


def test_a_session_that_ended_meanwhile_starts_again(plan: coopfile.Plan, host: HostBackend) -> None:
    """Between two commands nobody notices; what was held for it is let go."""
    session = coopfile.Session(plan, name="dev", backend=host)
    session.exec(["true"])
    first = host.live["dev"]
    host.lose("dev")
    assert session.exec(["echo", "on"]).text == "on\n"
    assert (len(host.opened), first.released) == (2, 1)


def test_a_session_that_ends_under_a_command(plan: coopfile.Plan, host: HostBackend) -> None:
    """The error has the facts, and what was printed before; the next command starts the session again."""
    session = coopfile.Session(plan, name="dev", backend=host)
    script = "read go; echo so far; echo bad >&2; kill -USR1 $PPID; sleep 60"
    earlier = signal.signal(signal.SIGUSR1, lambda *_: host.lose("dev"))
    try:
        with pytest.raises(coopfile.CommandLost) as caught:
            session.shell(script, stdin=b"go\n")
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    error = caught.value
    assert isinstance(error, coopfile.SessionGone)
    assert (error.session, error.argv, error.begun) == ("dev", ("/bin/sh", "-c", script), True)
    assert (error.stdout, error.stderr) == (b"so far\n", b"bad\n")
    assert session.exec(["echo", "on"]).text == "on\n"
    assert len(host.opened) == 2


def test_a_command_that_may_have_begun_is_not_run_again(plan: coopfile.Plan) -> None:
    """It is lost; the next one starts the session."""

    def answer(call: coopfile.Call) -> coopfile.Answer:
        if call.argv == ("die",):
            fake.lose("dev")
        return coopfile.Answer(stdout="x")

    fake = coopfile.FakeBackend(answer)
    session = coopfile.Session(plan, name="dev", backend=fake)
    with pytest.raises(coopfile.CommandLost) as caught:
        session.exec(["die"])
    assert caught.value.begun
    assert session.exec(["again"]).text == "x"
    assert [call.argv for call in fake.calls] == [("die",), ("again",)]


def test_threads_start_it_once(plan: coopfile.Plan) -> None:
    """However many need it at the same moment."""
    host = HostBackend(slow=0.05)
    session = coopfile.Session(plan, backend=host)
    threads = [threading.Thread(target=session.exec, args=(["true"],)) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(host.opened) == 1
    session.close()


def test_a_signal_handler_may_end_it_while_it_starts(plan: coopfile.Plan) -> None:
    """No lock of the thread that starts it is in the way."""
    host = HostBackend(slow=0.1)
    session = coopfile.Session(plan, backend=host)
    earlier = signal.signal(signal.SIGALRM, lambda *_: session.destroy())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert session.exec(["true"]).ok
    finally:
        signal.signal(signal.SIGALRM, earlier)
    session.close()
    assert host.live == {}


def test_a_forked_child_shares_nothing(plan: coopfile.Plan, host: HostBackend) -> None:
    """It joins by itself, ends nothing by leaving, and is refused where it asks for the end of it."""
    with coopfile.Session(plan, backend=host) as session:
        session.exec(["true"])
        live = host.live[session.name]

        def child() -> object:
            said: list[object] = [live.released, session.exec(["echo", "child"]).text, len(host.opened)]
            session.close()
            said += [live.over, host.removed]
            session.destroy()
            return said

        text = in_child(child)
        assert text.startswith("SessionError") and "forked from" in text
        assert in_child(lambda: (live.released, session.exec(["echo", "x"]).text, len(host.opened))) == (
            "(1, 'x\\n', 2)"
        )
        assert live.released == 0
        assert session.exec(["echo", "on"]).text == "on\n"


def test_a_child_of_a_busy_program_does_not_hang(plan: coopfile.Plan) -> None:
    """Although another thread was about to start the session when it was forked."""
    host = HostBackend(slow=0.2)
    session = coopfile.Session(plan, backend=host)
    thread = threading.Thread(target=session.exec, args=(["true"],))
    thread.start()
    host.opening.wait()
    assert in_child(lambda: session.exec(["echo", "child"]).text) == "child\n"
    thread.join()
    session.close()


def test_what_nobody_refers_to_ends(plan: coopfile.Plan, host: HostBackend) -> None:
    """An anonymous session does not last longer than what stands for it."""
    session = coopfile.Session(plan, backend=host)
    session.exec(["true"])
    del session
    gc.collect()
    assert len(host.removed) == 1


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError", "os.kill(os.getpid(), 2)"])
def test_it_does_not_outlive_the_interpreter(project: Path, end: str) -> None:
    """Also without a with statement, however the program ends; a child's end does not count."""
    script = (
        "import os, sys, coopfile\n"
        "from tests.unit.session.host import HostBackend\n"
        "class Backend(HostBackend):\n"
        "    def remove(self, spec):\n"
        "        super().remove(spec)\n"
        "        print('removed', flush=True)\n"
        "session = coopfile.Session(coopfile.compile(), backend=Backend())\n"
        "session.exec(['true'])\n"
        "pid = os.fork()\n"
        "if not pid: sys.exit()\n"
        "os.waitpid(pid, 0)\n"
        "print('child ended', flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script + end],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.stdout == "child ended\nremoved\n", done


def test_the_project_is_the_workspace(
    project: Path, host: HostBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found as `compile` finds it, when the session is made."""
    for name in ("sub/deep", "other"):
        (project / name).mkdir(parents=True)
    for name in ("Coopfile", "sub/Coopfile", "other/my.toml"):
        (project / name).write_text("")
    for place, root in (
        (".", project),
        ("other", project),
        ("sub", project / "sub"),
        (project / "sub/deep", project / "sub"),
        ("sub/Coopfile", project / "sub"),
        ("other/my.toml", project / "other"),
    ):
        monkeypatch.chdir(project)
        with coopfile.Session(coopfile.compile(place), directory=place, backend=host) as session:
            monkeypatch.chdir("/")
            session.exec(["true"])
        assert host.opened[-1].project.root == str(root)
    with pytest.raises(CoopError, match="is not a directory"):
        coopfile.Session(coopfile.compile("/"), directory="/no/such")


def test_variables_of_the_program(
    plan: coopfile.Plan, host: HostBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those of the moment when the session starts."""
    with coopfile.Session(plan, backend=host) as session:
        monkeypatch.setenv("SET_LATE", "yes")
        session.exec(["true"])
    assert host.opened[0].environment["SET_LATE"] == "yes"


def test_secrets_of_the_program(host: HostBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a session was started with stays secret when the program has other values by now, or none."""
    monkeypatch.setenv("TOKEN", "old secret")
    plan = coopfile.compile(overrides={"env": {"TOKEN": {"host": "TOKEN"}}})
    with coopfile.Session(plan, backend=host) as session:
        assert session.secrets() == {}
        session.exec(["true"])
        monkeypatch.delenv("TOKEN")
        assert session.secrets() == {"TOKEN": "old secret"}


def test_what_a_command_is_given(plan: coopfile.Plan, fake: coopfile.FakeBackend) -> None:
    """Arguments, variables, a directory and the time reach the back end as they are."""
    fake.answer(["a", "", "-x", "é\udcff"])
    session = coopfile.Session(plan, backend=fake)
    session.exec(
        ["a", "", "-x", "é\udcff"], environment={"A": "1", "B": ""}, directory=Path("sub"), timeout=1.5
    )
    (call,) = fake.calls
    assert call.argv == ("a", "", "-x", "é\udcff")
    assert (call.environment, call.directory, call.timeout) == ((("A", "1"), ("B", "")), "sub", 1.5)


@pytest.mark.parametrize(
    ("argv", "options", "said"),
    [
        ("make test", {}, "a command is a list"),
        ([], {}, "a command is a list"),
        (["a", 1], {}, "a command is a list"),
        (None, {}, "a command is a list"),
        (b"a", {}, "a command is a list"),
        (["a\0"], {}, "cannot be an argument"),
        (["\ud800"], {}, "cannot be an argument"),
        (["a"], {"environment": {"A=B": "c"}}, "no name of a variable"),
        (["a"], {"environment": {"": "c"}}, "no name of a variable"),
        (["a"], {"environment": {"A": 1}}, "cannot be an argument"),
        (["a"], {"directory": "a\0"}, "cannot be an argument"),
        (["a"], {"output": -1}, "output is -1"),
    ],
)
def test_commands_that_are_none(
    plan: coopfile.Plan, fake: coopfile.FakeBackend, argv: Any, options: Any, said: str
) -> None:
    """They are refused with a remedy before anything is started."""
    with pytest.raises(CoopError, match=said) as caught:
        coopfile.Session(plan, backend=fake).exec(argv, **options)
    assert caught.value.remedy
    assert fake.running == ()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": ""}, "cannot have the name"),
        ({"name": "a/b"}, "cannot have the name"),
        ({"name": 3}, "cannot have the name"),
        ({"name": "python-12-0123abcd"}, "sessions without one get"),
        ({"ttl": 0}, "ttl is 0"),
        ({"ttl": float("inf")}, "ttl is inf"),
        ({"ttl": 1e10}, "ttl is 1"),  # of which PID 1 could not wait for the end
    ],
)
def test_sessions_that_cannot_be(plan: coopfile.Plan, options: Any, said: str) -> None:
    """They are refused with a remedy."""
    with pytest.raises(CoopError, match=said) as caught:
        coopfile.Session(plan, **options)
    assert caught.value.remedy


def test_who_may_not_run_commands(plan: coopfile.Plan) -> None:
    """A plan of somebody without the right to gives no session."""
    access = Access(user="eve", trust="public", place="direct", tools=(), stores=(), sandboxed=True)
    with pytest.raises(CoopError, match="eve has trust public"):
        coopfile.Session(plan.replace(access=access))


def test_leaving_by_an_error_shows_that_error(plan: coopfile.Plan) -> None:
    """Not that the session could not be ended meanwhile; without one, that is told."""

    class Failing(HostBackend):
        def remove(self, spec: Any) -> None:
            raise CoopError("does not end")

    host = Failing()
    with pytest.raises(ZeroDivisionError), coopfile.Session(plan, backend=host) as session:
        session.exec(["true"])
        1 / 0  # noqa: B018
    with pytest.raises(CoopError, match="does not end"), coopfile.Session(plan, backend=host) as session:
        session.exec(["true"])
    host.close()


def test_a_shell_takes_a_text(plan: coopfile.Plan, host: HostBackend) -> None:
    """Pipes and all; a list is a mistake."""
    session = coopfile.Session(plan, backend=host)
    assert session.shell("printf 'b\\na\\n' | sort; exit 3").text == "a\nb\n"
    with pytest.raises(CoopError, match="a shell takes a text"):
        session.shell(["ls"])  # type: ignore[arg-type]


def test_leftovers_of_a_killed_program_are_known(plan: coopfile.Plan, tmp_path: Path) -> None:
    """By its name an anonymous session is one that nobody comes back to: nothing of it has to be kept."""
    name = coopfile.Session(plan).name
    state = store.State("id", name, str(tmp_path), None, "native", "", "", 0, 0, leased=True)
    for given, remains in ((state, False), (state.replace(name="dev"), True)):
        directory = tmp_path / "id"
        (directory / "persist" / "kept").mkdir(parents=True)
        (directory / "persist" / "kept" / "file").touch()
        store.write(str(directory), given)
        assert sweep.tidy(str(directory), str(tmp_path / "state"))
        assert directory.exists() == remains


def test_importing_costs_little(project: Path) -> None:
    """`import coopfile` loads nothing else; sessions do not load what only other things need."""
    script = (
        "import sys; before = set(sys.modules)\n"
        "import coopfile\n"
        "print(sorted(set(sys.modules) - before))\n"
        "coopfile.Session, coopfile.SessionManager, coopfile.FakeBackend\n"
        "heavy = {'asyncio', 'jinja2', 'jsonschema', 'oras', 'requests', 'urllib3', 'logging', 'http'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == ["['coopfile']", "[]"]


class OnEngine(HostBackend):
    """Gives sessions of which a container engine has the namespaces."""

    def open(self, spec: Spec) -> Open:
        """Return one that is there by its name only."""
        return Open(ContainerLive("docker", "/nonexistent", spec.name), True)


def test_its_workspace_is_given_where_that_can_be(
    plan: coopfile.Plan, host: HostBackend, project: Path
) -> None:
    """By this machine as it is; on an engine that is an error which says so, not a missing method."""
    for backend in (host, ThisMachine()):
        with coopfile.Session(plan, directory=project, backend=backend) as session:
            (descriptor,) = session.workspace()
            try:
                assert os.path.samestat(os.fstat(descriptor), os.stat(project))
            finally:
                os.close(descriptor)
    with pytest.raises(coopfile.SessionError, match="on docker does not give its workspace"):
        coopfile.Session(plan, directory=project, backend=OnEngine()).workspace()
