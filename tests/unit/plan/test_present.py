"""The plan as people read it."""

from __future__ import annotations

from hypothesis import given, settings

from coopfile.language.items import HostPattern, Variable
from coopfile.plan.model import Plan, with_leaf
from coopfile.plan.present import readable
from tests.unit.plan.samples import ACCESS, PLAN
from tests.unit.plan.strategies import PLANS


def test_sample() -> None:
    """Sections, aligned labels, one line for each path, host and variable."""
    assert readable(PLAN.replace(access=ACCESS)) == (
        """\
tools
  base              docker.io/library/debian:bookworm-slim
  apt packages      git
  set-up            true
  build network     none
  agent             npm install
  command           ["claude", "-p"]
files
  workspace         /workspace, read and write
  protected         2 built-in paths, which the host runs or reads as configuration
  hidden            **/.env*
  read only         ~/.gitconfig
  read and write    ~/.cache/go
network
  mode              none: its own loopback only
  hosts             1 listed, which count in proxy mode only
  published         127.0.0.1:3000:3000
environment
  EDITOR            vi
  TOKEN             the host's API_TOKEN, where there is one
session
  user              root inside, you outside; no capability
  kept in the home  .claude
  shared caches     pip
  installed tools   not kept
limits
  memory            2g
  processors        2
  processes         512
  scratch space     512m
  a tool call       2m, 100k of output
enforcement
  back end          apple
  isolation         at least vm
  OCI runtime       runsc
access
  user              bob
  trust             familiar, in direct conversation
  tools             read_file
  memory stores     social
  tool calls        in the sandbox"""
    )


def test_what_weakens_is_said() -> None:
    """What is off by default shows when it is on."""
    plan = PLAN
    for key, value in {
        "sandbox.enabled": False,
        "sandbox.fallback": "host",
        "sandbox.profile": "~/own.sb",
        "tools.confirm": "never",
        "limits.cpus": None,
        "network.mode": "proxy",
        "network.allow": (),
    }.items():
        plan = with_leaf(plan, key, value)
    lines = [" ".join(line.split()) for line in readable(plan).splitlines()]
    for line in (
        "otherwise run on the host, without a sandbox",
        "Seatbelt profile ~/own.sb",
        "tool calls not sandboxed",
        "confirmation never asked for",
        "processors all",
        "hosts none at all",
    ):
        assert line in lines


def test_long_lists_have_one_line_for_each_item() -> None:
    """Only the first line of a row has the label."""
    allow = (HostPattern("github.com", subdomains=True), HostPattern("pypi.org"))
    plan = with_leaf(with_leaf(PLAN, "network.mode", "proxy"), "network.allow", allow)
    assert f"  hosts{' ' * 13}*.github.com\n{' ' * 20}pypi.org\n" in readable(plan)


@given(PLANS)
@settings(max_examples=40)
def test_safe_to_print(plan: Plan) -> None:
    """Whatever a plan holds, every line is printable."""
    assert all(line.isprintable() for line in readable(plan).split("\n"))


def test_line_feeds_in_values_do_not_make_lines() -> None:
    """A value cannot draw a row that the plan does not have."""
    plan = with_leaf(PLAN, "env", (Variable("A", "x\nnetwork\n  mode  none"),))
    assert readable(plan).count("\nnetwork\n") == 1
