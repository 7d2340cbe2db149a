"""``coop run``: run a command, the agent, or a shell in the sandbox that the plan describes."""

from __future__ import annotations

import os
import sys
import time

from coopfile.errors import CoopError, UsageError
from coopfile.find import approvals, directories, find, home_directory
from coopfile.plan import cache
from coopfile.plan.bind import Host, bind

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from coopfile.cli.options import RunOptions
    from coopfile.compile import Compiled
    from coopfile.find import Project
    from coopfile.native.runner import Prepared
    from coopfile.plan.bind import Launch, Weakening
    from coopfile.plan.model import Plan

SUMMARY = "run a command in the sandbox: one given after --, else the agent, else a shell"
EPILOG = """examples:
  coop run -- make test
  coop run --timeout 10m -- pytest -q
  coop run --set network.mode=host -- curl https://example.org
  coop run --as signal:+15555550100 -- ls      with what that user may have
  coop run                                     agent.command, or a shell

The exit status is the command's own; 124: the time ran out; 125: coop could not run it;
126 and 127: the command could not be executed, or was not found.
"""

_RUNNABLE = "owner, full and inner users"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    import argparse

    parser.add_argument(
        "--timeout", metavar="TIME", help="end the command after this time, such as 90s or 10m"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="[--] COMMAND", help="a program and its arguments"
    )


def main(options: argparse.Namespace) -> int:
    """Run what argparse understood."""
    from coopfile.cli.options import RunOptions

    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    named = {name: getattr(options, name) for name in RunOptions._fields if hasattr(options, name)}
    named.update(command=tuple(command), assignments=tuple(options.assignments or ()))
    return execute(RunOptions(**named))


def execute(options: RunOptions) -> int:
    """Compile or recall the plan, run the command, and return the exit status."""
    timeout = None if options.timeout is None else _seconds(options.timeout)
    project = find(options.directory, options.file, os.environ)
    plan = recall(project, options)
    _check_access(plan)
    prepared = prepare(plan, project, tuple(options.command))
    if not options.quiet:
        _tell_weakenings(plan, prepared, options.verbose)
    from coopfile.native.runner import run

    outcome = run(prepared, timeout=timeout)
    for note in outcome.notes:
        _say(note)
    return outcome.status


def recall(project: Project, options: RunOptions) -> Plan:
    """Return the project's plan, from the cache if nothing it depends on has changed."""
    own = directories(os.environ)
    key = cache.key(project, options.compile_options, os.environ)
    plan = cache.load(own.cache, key)
    if plan is None:
        from coopfile.cli.options import request
        from coopfile.compile import compile_project

        compiled = compile_project(request(options), project=project)
        require_approval(compiled)
        plan = compiled.plan
        cache.store(own.cache, key, plan, project.places)
    return plan


def require_approval(compiled: Compiled) -> None:
    """Ask on a terminal whether the project may widen its sandbox; elsewhere refuse if it does."""
    from coopfile.access import approval

    directory = approvals(os.environ)
    changes = approval.unapproved(compiled, directory)
    if not changes:
        return
    needed = approval.ApprovalError(compiled, changes)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise needed
    from coopfile.cli.output import safe

    question = f"allow this for {safe(compiled.project.root)}? [y/N] "
    sys.stderr.write("\n".join(map(safe, needed.message.split("\n"))) + f"\n{question}")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise needed
    approval.approve(compiled, directory)


def prepare(plan: Plan, project: Project, command: tuple[str, ...]) -> Prepared:
    """Bind a plan to this machine and lay it out for the native back end."""
    _check_backend(plan)
    from coopfile.native import runner

    own = directories(os.environ)
    private = tuple(os.path.realpath(path) for path in (own.cache, own.state))
    inputs = (*project.inputs, os.path.realpath(own.config))
    return runner.prepare(launch(plan, project, command), inputs, private)


def launch(plan: Plan, project: Project, command: tuple[str, ...]) -> Launch:
    """Bind a plan to this machine."""
    home = os.path.realpath(home_directory(os.environ))
    host = Host(
        uid=os.geteuid(),
        gid=os.getegid(),
        user=os.environ.get("USER") or "user",
        home=home,
        workspace=project.root,
        directory=project.directory,
        environment=os.environ,
        shell="/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh",
        started=int(time.time()),
    )
    return bind(plan, host, command)


def _seconds(text: str) -> float:
    from coopfile.language.values import BadValue, Duration

    try:
        return int(Duration().parse(text)) / 1000
    except BadValue as error:
        raise UsageError(f"--timeout: {error.message}", error.help) from None


def _check_access(plan: Plan) -> None:
    """Refuse a user whose trust does not let them run commands (design section 11)."""
    if plan.access is None:
        return
    from coopfile.access.trust import may_run_commands

    if not may_run_commands(plan.access):
        who = plan.access.user or "an unknown user"
        raise CoopError(
            f"{who} has trust {plan.access.trust}, which may not run commands",
            f"{_RUNNABLE} may; trust is set in [[users]], and lowered by --place group",
        )


def _check_backend(plan: Plan) -> None:
    """Refuse what the native back end cannot give; it is the only one that runs so far."""
    sandbox = plan.sandbox
    if plan.base.image is not None:
        raise CoopError(
            f"base.image: {plan.base.image} cannot be used yet: root file systems are not built yet",
            "leave base.image out to use the host's own tools",
        )
    if not {"auto", "native"}.intersection(sandbox.backend):
        raise CoopError(
            f"sandbox.backend: {', '.join(sandbox.backend)} cannot run commands yet",
            'use "native" or "auto"',
        )
    if sandbox.min_isolation != "namespace":
        raise CoopError(
            f'sandbox.min_isolation = "{sandbox.min_isolation}" asks for more than the native back end gives',
            'the native back end isolates with namespaces: "namespace"',
        )


def _tell_weakenings(plan: Plan, prepared: Prepared, verbose: int) -> None:
    for weakening in (*prepared.weakenings, *_unkept(plan)):
        _say(f"weaker than the plan: {weakening.key}: {weakening.text}")
        if verbose and weakening.remedy:
            _say(f"  to have it: {weakening.remedy}")
    if verbose:
        for skipped in prepared.layout.skipped:
            _say(f"skipped: {skipped}")


def _unkept(plan: Plan) -> tuple[Weakening, ...]:
    """Return what was asked for and is not given; of what every plan has, `coop status` tells."""
    session = plan.session
    if (
        session.persist == (".claude",)
        and session.commit == "never"
        and not (session.caches or plan.network.publish)
    ):
        return ()
    from coopfile.native.promises import unkept

    return unkept(plan)


def _say(text: str) -> None:
    from coopfile.cli.output import safe

    sys.stderr.write(f"coop: {safe(text)}\n")
