"""Probes of the ways out of a sandbox and into it: the proxy, published ports, other sandboxes."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable

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


@scenario(network_host='network.mode = "host" reaches a server on the host\'s loopback.')
def network(where: Backend) -> Verdicts:
    """Run with the host's network."""
    with listener(where) as listening, where.project('network.mode = "host"\n') as project:
        result = project.python(_CONNECT, str(listening["port"]), options=where.options)
        return {"network host": result.out.strip() or f"{result.status}: {result.err}"}


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
            entries = json.loads(project.coop("log", "--denied", "--json").out or "[]")
        logged = any((entry["host"], entry["port"]) == ("another.example", 443) for entry in entries)
        found = json.loads(result.out) if result.status == 0 else {"proxy to a listed host": str(result)}
        return {
            **found,
            "blocked is told": "told" if told else "not told",
            "blocked is logged": "logged" if logged else "not logged",
        }


# What the scenario before tells of.
PROXIED = tuple(probe for probe in SENTENCES if "prox" in probe or "blocked is" in probe)

_INTERNET = """
import errno, json, socket, sys
host, port = json.loads(sys.argv[1]), int(sys.argv[2])
def tried(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as client:
        client.settimeout(5)
        try:
            client.connect((address, port))
        except TimeoutError:
            return "no answer"
        except OSError:
            return "refused"
    return "reached"
def of_all(places):
    found = {tried(*place) for place in places}
    return "out of reach" if found == {"refused"} else " ".join(sorted(found))
with open("/proc/net/route") as table:
    routes = [line.split()[1] for line in table]
with open("/etc/resolv.conf") as file:
    servers = [line.split()[1] for line in file if line.startswith("nameserver")]
private = ("10.9.8.7", "172.20.1.1", "192.168.1.1", "100.64.7.7", "224.0.0.1", "fd12:3456:789a::1", "fe80::1")
print(json.dumps({
    "interfaces of veth": str(len(socket.if_nameindex())),
    "way out of veth": "there is one" if "00000000" in routes else "none",
    "name server of veth": " ".join(servers),
    "veth to the host": of_all([(address, port) for address in host] + [("10.0.2.2", port)]),
    "veth to the loopback": of_all([("127.0.0.1", port)]),
    "veth to metadata": of_all([("169.254.169.254", 80), ("fd00:ec2::254", 80), ("168.63.129.16", 80)]),
    "veth to private networks": of_all([(address, 80) for address in private]),
}))
"""

# On the back end's host: listens for everybody, and tells where that is.
_EVERYWHERE = """
import json, socket, subprocess, sys
server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
shown = subprocess.run(["ip", "-json", "address"], capture_output=True, timeout=30, check=True).stdout
found = [one["local"] for link in json.loads(shown) for one in link["addr_info"] if one["scope"] == "global"]
print(json.dumps([found, server.getsockname()[1]]), flush=True)
sys.stdin.read()
"""
REFUSED = "refused, as coop status says"
LACKING = "not on this machine"


@scenario(
    interfaces_of_veth='network.mode = "veth" gives one interface beside the loopback.',
    way_out_of_veth="There is a way to the internet: tests/native have one, and use it.",
    name_server_of_veth="Names are asked of coop's own server, not of the LAN's.",
    veth_to_the_host="What listens on every address of the host is out of reach at once.",
    veth_to_the_loopback="So is its loopback.",
    veth_to_metadata="So are the cloud's metadata services.",
    veth_to_private_networks="So are private, link-local and multicast addresses, of both versions of IP.",
)
def internet(where: Backend) -> Verdicts:
    """Have the internet without the LAN, or be refused: then with the reason in `coop status`."""
    argv = [*where.actor.prefix, "/usr/bin/python3", "-I", "-S", "-c", _EVERYWHERE]
    with (
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as serving,
        where.project('network.mode = "veth"\n') as project,
    ):
        assert serving.stdout is not None
        addresses, port = json.loads(serving.stdout.readline())
        result = project.python(_INTERNET, json.dumps(addresses), str(port), options=where.options)
        serving.communicate(timeout=DEADLINE)
        if result.status != 125:
            found = json.loads(result.out) if result.status == 0 else {"interfaces of veth": str(result)}
            return {**dict.fromkeys(INTERNET, "no verdict"), **found}
        status = json.loads(project.coop("status", "--json", *where.options).out)
    (told,) = [item for item in status["backends"] if item["taken"]]
    reason, remedy = told["why"] or "", told["remedy"] or ""
    if where.engine is None:
        kind, _, why = reason.partition(": ")
        lacking = kind == "internet" and why in result.err and bool(remedy)
        return dict.fromkeys(INTERNET, LACKING if lacking else str((result, told)))
    named = reason.startswith("network.mode: ") and 'network.mode = "none"' in remedy and reason in result.err
    return dict.fromkeys(INTERNET, REFUSED if named and not told["usable"] else str((result, told)))


# What the scenario before tells of.
INTERNET = tuple(probe for probe in SENTENCES if "veth" in probe)


def completed(found: Verdicts, by_root: Callable[[], Verdicts]) -> Verdicts:
    """Return verdicts with those of root for what an ordinary user cannot have on this machine."""
    if LACKING not in found.values():
        return found
    others = by_root()
    return {probe: others[probe] if verdict == LACKING else verdict for probe, verdict in found.items()}


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
