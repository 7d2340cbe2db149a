"""network.publish: what listens in the sandbox is reached from the host, and nothing else changes."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from contextlib import ExitStack

import pytest

from tests.netlab import HOST, INTERNET, PORT, Lab
from tests.publishlab import ANSWER, FAREWELL, ask, connect, free_port, is_listening, publish, receive, start
from tests.sandboxes import DEADLINE, Project, descendants, kill, wait_gone, wait_until

pytestmark = pytest.mark.native

ASK = """
import socket, sys
end = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30)
end.sendall(b"hello")
end.shutdown(socket.SHUT_WR)
print(end.recv(100))
"""


@pytest.mark.parametrize("mode", ["none", "proxy"])
def test_served(project: Project, mode: str) -> None:
    """A server in the sandbox answers on the host's loopback, at no other address, until the run ends."""
    port = free_port()
    publish(project, f"{port}:3000", mode=mode)
    process = start(project, ANSWER, 3000)
    assert ask(port, b"hello") == b"5 hello"
    assert not is_listening(port, "127.0.0.2")
    process.terminate()
    process.wait(DEADLINE)
    assert not is_listening(port)


def test_veth(connected: Project, lab: Lab) -> None:
    """With the internet, too; the sandbox still reaches nothing of the host's."""
    connected.coopfile('[network]\nmode = "veth"\npublish = ["3000", "0.0.0.0:3001:3000"]\n')
    process = start(connected, ANSWER, 3000)
    assert lab.run(sys.executable, "-I", "-c", ASK, "127.0.0.1", "3000") == "b'5 hello'\n"
    assert lab.run(sys.executable, "-I", "-c", ASK, HOST, "3001") == "b'5 hello'\n"
    process.terminate()
    process.wait(DEADLINE)
    script = f"""
import socket
print(socket.create_connection(("{INTERNET}", {PORT}), timeout=30).recv(5))
try:
    socket.create_connection(("{HOST}", 3001), timeout=30)
except OSError:
    print("out of reach")
"""
    result = connected.python(script)
    assert result.out == "b'hello'\nout of reach\n", result
    assert lab.changes() == {}


def test_same_port(project: Project) -> None:
    """With the port alone it is the same on both sides; more than one can be published."""
    one, other = free_port(), free_port()
    publish(project, str(one), f"127.0.0.1:{other}:{one}")
    start(project, ANSWER, one)
    assert ask(one) == ask(other) == b"0 "


def test_addresses(project: Project) -> None:
    """The host's address is the one that is named, over IPv4 and IPv6."""
    port = free_port()
    publish(project, f"127.0.0.2:{port}:3000", f"[::1]:{port}:3000")
    start(project, ANSWER, 3000)
    assert ask(port, b"4", "127.0.0.2") == b"1 4"
    assert ask(port, b"6", "::1") == b"1 6"
    assert not is_listening(port)


def test_low_port(project: Project) -> None:
    """A port below 1024 of the sandbox's can be listened on there, though nobody has a capability."""
    port = free_port()
    publish(project, f"{port}:80")
    start(project, ANSWER, 80)
    assert ask(port) == b"0 "


def test_taken(project: Project) -> None:
    """A port that somebody has is an error at its place in the Coopfile, before the command starts."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        publish(project, str(free_port()), f"{port}:80")
        result = project.shell("touch started")
        assert project.run("true", options=("--no-publish",)).status == 0
    line = (project.directory / "Coopfile").read_text().splitlines()[2]
    column = line.index(f'"{port}:80"') + 1
    assert result.status == 125
    assert f"Coopfile:3:{column}: error: network.publish: port {port} of 127.0.0.1 is taken" in result.err
    assert "--no-publish" in result.err and not (project.directory / "started").exists()


def test_another_hosts_address(project: Project) -> None:
    """An address that the host has not is an error that says so."""
    publish(project, "192.0.2.1:8000:80")
    result = project.run("true")
    assert result.status == 125 and "no address of this host" in result.err


def test_twice(project: Project) -> None:
    """One port of the host for two of the sandbox is an error of `coop check`."""
    publish(project, "8000:80", "8000:81")
    result = project.coop("check")
    assert result.status == 1 and "leads to 80 already" in result.out + result.err


def test_kept(project: Project) -> None:
    """`coop status` and a run list nothing of it as not kept, but for the host's own network."""
    publish(project, str(free_port()))
    native = json.loads(project.coop("status", "--json").out)["backends"][0]
    assert native["name"] == "native"
    assert "network.publish" not in [weakening["key"] for weakening in native["weakenings"]]
    assert "network.publish" not in project.run("true").err
    told = project.run("true", options=("--set", "network.mode=host")).err
    assert "network.publish" in told and "not mapped" in told


def test_large(project: Project) -> None:
    """What is large arrives whole, and who has ended its direction still gets the answer."""
    port, data = free_port(), os.urandom(1 << 20) * 32
    publish(project, f"{port}:3000")
    start(project, ANSWER, 3000)
    assert ask(port, data) == b"%d " % len(data) + data


def test_many(project: Project) -> None:
    """Two hundred connections at once are all served."""
    port = free_port()
    publish(project, f"{port}:3000")
    start(project, ANSWER, 3000)
    with ExitStack() as stack:
        held = [stack.enter_context(connect(port)) for _ in range(200)]
        for number, end in enumerate(held):
            end.sendall(b"%d" % number)
        for number, end in reversed(list(enumerate(held))):
            end.shutdown(socket.SHUT_WR)
            text = b"%d" % number
            assert receive(end) == b"%d " % len(text) + text


def test_nobody_listens(project: Project) -> None:
    """A connection to a port on which nothing listens breaks off, and the end of the run tells why."""
    port = free_port()
    publish(project, f"{port}:3000")
    process = project.popen("sh", "-c", "echo; read x", stdin=-1)
    assert process.stdout is not None and process.stdout.read(1) == b"\n"
    with pytest.raises(ConnectionResetError), connect(port) as end:
        end.recv(1)
    _, err = process.communicate(b"\n", timeout=DEADLINE)
    assert b"nothing in the sandbox listened on 127.0.0.1:3000" in err


def test_sent_before_the_end(project: Project) -> None:
    """What a command has sent before it ends arrives, whether or not somebody is reading just then."""
    port, size = free_port(), 2_000_000
    publish(project, f"{port}:3000")
    process = start(project, FAREWELL, 3000, size)
    below = descendants(process.pid)
    end = connect(port)
    assert wait_until(lambda: len(descendants(process.pid)) < len(below)), "the command does not end"
    assert len(receive(end)) == size
    end.close()
    assert process.wait(DEADLINE) == 0
    assert project.run("true").status == 0, "the port can be had again at once"


@pytest.mark.parametrize("how", ["end", "kill coop", "kill the monitor", "kill the command", "kill all"])
def test_nothing_left(project: Project, how: str) -> None:
    """However a run ends, nobody listens any more, and no process is left."""
    port = free_port()
    publish(project, f"{port}:3000", mode="proxy")
    process = start(project, ANSWER, 3000)
    end = connect(port)
    below = descendants(process.pid)
    assert len(below) == 5  # monitor, publisher, proxy, PID 1, command
    victims = {
        "end": [],
        "kill coop": [process.pid],
        "kill the monitor": below[:1],
        "kill the command": below[-1:],
        "kill all": [process.pid, *below],
    }
    if how == "end":
        process.terminate()
    kill(*victims[how])
    process.wait(DEADLINE)
    assert wait_gone(below), below
    assert wait_until(lambda: not is_listening(port))
    end.close()


def publisher_of(process_number: int) -> int:
    """Return the publisher among the processes of a run without a proxy."""
    monitor, *others = descendants(process_number)
    (found,) = [pid for pid in others if _namespace(pid, "pid") == _namespace(monitor, "pid")]
    return found


def _namespace(pid: int, kind: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{kind}")


def test_killed_publisher(project: Project) -> None:
    """When the publisher is killed nobody listens, and the command goes on."""
    port = free_port()
    publish(project, f"{port}:3000")
    process = start(project, ANSWER, 3000)
    publisher = publisher_of(process.pid)
    os.kill(publisher, signal.SIGKILL)
    assert wait_gone([publisher])
    assert wait_until(lambda: not is_listening(port)) and process.poll() is None
    process.terminate()
    assert process.wait(DEADLINE) == 143


def test_locked_in(project: Project) -> None:
    """The publisher has no capability, cannot gain one, holds nothing of the caller's, reads no file."""
    theirs, ours = os.pipe()
    number = os.fstat(ours).st_ino
    port = free_port()
    publish(project, f"{port}:3000")
    process = project.popen("sh", "-c", "echo; sleep 60", pass_fds=(ours,))
    try:
        assert process.stdout is not None and process.stdout.read(1) == b"\n"
        publisher = publisher_of(process.pid)
        status = wait_until(lambda: (found := _status(publisher))["Seccomp"] == "2" and found)
        assert status, "it has no filter"
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        assert status["NoNewPrivs"] == "1"
        held = [os.readlink(f"/proc/{publisher}/fd/{name}") for name in os.listdir(f"/proc/{publisher}/fd")]
        assert f"pipe:[{number}]" not in held
    finally:
        os.close(theirs)
        os.close(ours)


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status") as file:
        return dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)


def test_as_oneself(project: Project) -> None:
    """With the caller's own uid inside it is the same."""
    port = free_port()
    publish(project, f"{port}:3000")
    project.environment["COOP_SESSION_USER"] = "me"
    start(project, ANSWER, 3000)
    assert ask(port) == b"0 "


def test_at_once(project: Project) -> None:
    """Several connections that send and receive much at once all get their own."""
    port = free_port()
    publish(project, f"{port}:3000")
    start(project, ANSWER, 3000)
    answers: list[bytes] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(port, b"x" * 3_000_000))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert [len(answer) for answer in answers] == [3_000_008] * 4


def test_session(project: Project) -> None:
    """The ports of a session are its own: they lead to whatever runs in it, until it ends."""
    port = free_port()
    publish(project, f"{port}:3000")
    argv = ("/usr/bin/python3", "-I", "-c", ANSWER, "3000")
    try:
        for _ in range(2):
            process = project.popen(*argv, options=("--session", "web"))
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            assert ask(port, b"hello") == b"5 hello"
            process.kill()
            process.wait(DEADLINE)
            assert is_listening(port)
    finally:
        stopped = project.coop("stop", "web")
    assert stopped.status == 0 and wait_until(lambda: not is_listening(port))
