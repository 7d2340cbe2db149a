"""Every back end behaves like native, but for what ``differences`` says (`make conformance`)."""

from __future__ import annotations

from functools import cache

import pytest

from tests.containers.backends import BACKENDS, DOCKER_ROOT, NATIVE, NATIVE_ROOT, backend, weakenings
from tests.containers.differences import explained
from tests.containers.networks import completed
from tests.containers.probes import verdicts
from tests.containers.scenarios import SCENARIOS, SENTENCES, Verdicts
from tests.engines.cell import UnusableError
from tests.engines.engine import NAMES, Engines

pytestmark = pytest.mark.xdist_group("conformance")  # native's verdicts are found once in a process


@cache
def natives(engines: Engines, scenario: str) -> Verdicts:
    """Return what native makes of a scenario, for an ordinary user; by root what that one cannot have."""

    def by_root() -> Verdicts:
        return verdicts(engines, NATIVE_ROOT, scenario)

    return completed(verdicts(engines, NATIVE, scenario), by_root)


@cache
def listed(engines: Engines, name: str, coopfile: str = "") -> set[str]:
    """Return the keys that `coop status` lists as weaker on a back end."""
    return weakenings(backend(engines, name), coopfile)


# Others run the same program in the same way, for somebody else or with other ids.
_WHOLE = (NATIVE, *NAMES)
_BY_WHO_RUNS_IT = ("batch", "limits", "places", "network", "internet", "proxied", "published", "apart")


@pytest.mark.parametrize(
    ("name", "scenario"),
    [
        (name, scenario)
        for name in BACKENDS
        for scenario in (SCENARIOS if name in _WHOLE else _BY_WHO_RUNS_IT)
        if name != NATIVE
    ],
)
def test_a_back_end_behaves_like_native(engines: Engines, name: str, scenario: str) -> None:
    """Every verdict is native's, or its difference is explained, and listed where it weakens the plan."""
    try:
        expected, found = natives(engines, scenario), verdicts(engines, name, scenario)
    except UnusableError as error:
        pytest.skip(str(error))
    assert found.keys() == expected.keys()
    problems = []
    for probe, verdict in found.items():
        if verdict == expected[probe]:
            continue
        difference = explained(probe, name, verdict)
        if difference is None:
            problems.append(f"{probe}: {verdict!r}, not {expected[probe]!r}. {SENTENCES[probe]}")
        elif difference.weakening not in listed(engines, name, difference.coopfile):
            problems.append(f"{probe}: `coop status` does not list {difference.weakening}")
    assert not problems, "\n".join([name, *problems])


@pytest.mark.parametrize(("name", "key"), [("podman-rootless", "seccomp"), (DOCKER_ROOT, "proc")])
def test_what_is_weaker_on_every_machine_is_told_when_asked(engines: Engines, name: str, key: str) -> None:
    """By `coop status` and by `coop run -v`, not by every run."""
    try:
        where = backend(engines, name)
    except UnusableError as error:
        pytest.skip(str(error))
    assert key in listed(engines, name)
    with where.project() as project:
        for words, told in (([], False), (["-v"], True)):
            result = project.run("true", options=[*words, *where.options])
            assert result.status == 0, result
            assert (f"weaker than the plan: {key}: " in result.err) == told, result


# What the probes are for: a table in which everybody is equally unprotected shows nothing.
_PROMISES = {
    "host files": "absent",
    "writing outside": "denied",
    "changing tools": "denied",
    "hidden file": "denied",
    "hidden directory": "denied",
    "parent of hidden": "denied",
    "protected file": "read-only",
    "protected directory": "denied",
    "parents of protected": "denied",
    "making the missing": "refused",
    "given paths": "denied",
    "interfaces": "lo",
    "loopback": "works",
    "listener of the host": "out of reach",
    "abstract socket of the host": "out of reach",
    "identity": "root",
    "capabilities": "0",
    "no new privileges": "set",
    "set id program": "as before",
    "dangerous calls": "refused",
    "mounting": "denied",
    "making devices": "denied",
    "writing to proc": "open: ",
    "masked proc": "shows: ",
    "scratch": "works",
    "variables": "also: ",
    "hostile values": "intact",
    "hostile arguments": "intact",
    "owners on the host": "the caller's",
    "guards on the host": "as before",
    "traces in the workspace": "none",
    "secrets in command lines": "nowhere",
    "process in the background": "gone",
    "limit of memory": "held",
    "limit of processes": "held",
    "limit of scratch space": "held",
    "status 125 of the command": "125",
    "ended by TERM": "143",
    "missing program": "127",
    "file without the right to execute": "126",
    "streams": "intact",
    "signals": "ready HUP INT USR1 USR2 QUIT TERM 9",
    "time runs out": "124",
    "killed": "nothing is left",
    "terminal": "0 1 2 97x31",
    "resizing": "70x20",
    "control P": "10",
    "interrupt": "interrupted, 5",
    "network host": "reached",
    "interfaces of veth": "2",
    "way out of veth": "there is one",
    "name server of veth": "10.0.2.3",
    "veth to the host": "out of reach",
    "veth to the loopback": "out of reach",
    "veth to metadata": "out of reach",
    "veth to private networks": "out of reach",
    "proxy to a listed host": "passes",
    "proxy to another host": "blocked, with the line",
    "proxy to the host": "blocked",
    "proxy to metadata": "blocked",
    "past the proxy": "no way",
    "names past the proxy": "not resolved",
    "blocked is told": "told",
    "blocked is logged": "logged",
    "interfaces beside the proxy": "lo",
    "published port afterwards": "ConnectionRefusedError",
    "published port": "reached",
    "other sandbox": "out of reach",
}


def test_native_keeps_its_promises(engines: Engines) -> None:
    """What the others are compared with is what the plan promises."""
    found: Verdicts = {}
    for scenario in SCENARIOS:
        found |= natives(engines, scenario)
    assert {probe: found[probe] for probe in _PROMISES} == _PROMISES
    assert found.keys() == SENTENCES.keys()
