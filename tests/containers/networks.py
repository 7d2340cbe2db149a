"""Probes of the ways out of a sandbox and into it: the proxy, published ports, other sandboxes."""

from __future__ import annotations

import json
import signal

from tests.containers.backends import Backend
from tests.containers.batch import listener
from tests.containers.scenarios import SENTENCES, Verdicts, scenario
from tests.sandboxes import DEADLINE

_CONNECT = """
import socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=2).close()
    print("reached")
except OSError as error:
    print("out of reach")
"""


_PROXIED = """
import json, os, socket, sys
listed, port = sys.argv[1], int(sys.argv[2])
def asked(host, port):
    with socket.create_connection(("127.0.0.1", 3128), timeout=30) as client:
        client.sendall(f"CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n".encode())
        return client.recv(65536).decode("ascii", "replace")
def verdict(answer):
    return "blocked" if answer.split()[1] == "403" else "passes"
def direct(address):
    try:
        socket.create_connection(address, timeout=3).close()
    except OSError as error:
        return "no way" if error.errno == 101 else str(error)
    return "reached"
def resolved(name):
    try:
        return str(socket.getaddrinfo(name, 80))
    except OSError:
        return "not resolved"
another = asked("another.example", 443)
variables = sorted(name for name in os.environ if "proxy" in name.lower())
print(json.dumps({
    "proxy to a listed host": verdict(asked(listed, 80)),
    "proxy to another host": verdict(another) + (", with the line" if "in Coopfile:1" in another else ""),
    "proxy to the host": verdict(asked("127.0.0.1", port)),
    "proxy to metadata": verdict(asked("169.254.169.254", 80)),
    "past the proxy": direct(("169.254.169.254", 80)),
    "names past the proxy": resolved("localhost.example"),
    "interfaces beside the proxy": " ".join(name for _, name in socket.if_nameindex()),
    "variables of the proxy": " ".join(f"{name}={os.environ[name]}" for name in variables),
}))
"""


@scenario(
    proxy_to_a_listed_host='network.mode = "proxy" lets through what is listed.',
    proxy_to_another_host="What is not listed is blocked, and the answer names file and line.",
    proxy_to_the_host="The host's loopback is out of reach, though it is listed.",
    proxy_to_metadata="The cloud's metadata service is blocked.",
    past_the_proxy="There is no route past the proxy.",
    names_past_the_proxy="There is no name server.",
    interfaces_beside_the_proxy="There is nothing but the loopback.",
    variables_of_the_proxy="The variables that programs read lead to the proxy.",
    blocked_is_told="What was blocked is told at the end of the run.",
    blocked_is_logged="coop log lists it.",
)
def proxied(where: Backend) -> Verdicts:
    """Go through a proxy, and past it."""
    with listener(where) as listening:
        listed, port = "listed.example", listening["port"]
        allow = f'["{listed}", "127.0.0.1:{port}"]'
        with where.project(f'network = {{ mode = "proxy", allow = {allow} }}\n') as project:
            result = project.python(_PROXIED, listed, str(port), options=where.options)
            if result.status == 125 and "network.mode" in result.err:
                return dict.fromkeys(PROXIED, "refused")
            told = "another.example:443 is blocked" in result.err
            entries = json.loads(project.coop("log", "--json").out or "[]")
        logged = any((entry["host"], entry["port"]) == ("another.example", 443) for entry in entries)
        found = json.loads(result.out) if result.status == 0 else {"proxy to a listed host": str(result)}
        return {
            **found,
            "blocked is told": "told" if told else "not told",
            "blocked is logged": "logged" if logged else "not logged",
        }


# What the scenario before tells of.
PROXIED = tuple(probe for probe in SENTENCES if "prox" in probe or "blocked is" in probe)

_SERVE = """
import socket, sys
server = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
server.accept()[0].sendall(b"hello")
"""


# On the back end's host, whose network may not be the tests' own.
_FREE_PORT = 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'
_GREETED = """
import socket, sys
try:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=30) as client:
        print("reached" if client.recv(5) == b"hello" else "not answered")
except OSError as error:
    print(type(error).__name__)
"""


@scenario(
    published_port="network.publish leads from a port of the host's inside.",
    published_port_afterwards="When the command has ended, nobody listens there.",
)
def published(where: Backend) -> Verdicts:
    """Connect to what a command serves."""
    port = where.actor.run("/usr/bin/python3", "-I", "-c", _FREE_PORT).out.strip()

    def call() -> str:
        answer = where.actor.run("/usr/bin/python3", "-I", "-c", _GREETED, port)
        return answer.out.strip() or answer.err

    with where.project(f'network.publish = ["{port}:8080"]\n') as project:
        argv = ("/usr/bin/python3", "-I", "-c", _SERVE, "8080")
        process = project.popen(*argv, options=where.options)
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            return {"published port": str(process.communicate(timeout=DEADLINE))}
        found = {"published port": call()}
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE)
        return {**found, "published port afterwards": call()}


@scenario(other_sandbox="A sandbox does not reach what another one serves.")
def apart(where: Backend) -> Verdicts:
    """Connect from one sandbox to another."""
    with where.project() as project:
        argv = ("/usr/bin/python3", "-I", "-c", _SERVE, "8080")
        process = project.popen(*argv, options=where.options)
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            return {"other sandbox": str(process.communicate(timeout=DEADLINE))}
        result = project.python(_CONNECT, "8080", options=where.options)
        return {"other sandbox": result.out.strip() or f"{result.status}: {result.err}"}
