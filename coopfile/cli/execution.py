"""Carrying out ``coop run``: the plan is found, told of and enforced, by whatever is to do that."""

from __future__ import annotations

import os
import sys

from coopfile import startup
from coopfile.cli.options import seconds
from coopfile.errors import CoopError, SettingError, UsageError
from coopfile.find import approvals, directories, find
from coopfile.launching import check_access, log, native_is_impossible, prefers_native, prepare
from coopfile.plan import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coopfile.audit import Entry
    from coopfile.cli.options import CommandOptions, RunOptions
    from coopfile.compiling import Compiled
    from coopfile.find import Project
    from coopfile.native.prepared import Prepared
    from coopfile.native.runner import Outcome
    from coopfile.plan.launch import Weakening
    from coopfile.plan.model import Plan

_WIDEST = 400  # characters of a line of progress


def execute(options: RunOptions) -> int:
    """Compile or recall the plan, run the command, and return the exit status."""
    timeout = None if options.timeout is None else seconds("--timeout", options.timeout)
    project = find(options.directory, options.file, os.environ)
    from coopfile.audit import Entry  # which not every system has that `coop render` works on

    entry = Entry("run", project.root, options.command, options.identity)
    try:
        status = _execute(options, project, timeout, entry)
    except BaseException as error:
        entry.failed(error)
        raise
    entry.ended(status)
    return status


def _execute(options: RunOptions, project: Project, timeout: float | None, entry: Entry) -> int:
    plan, digest = recalled(project, options)
    if not options.publish:
        plan, digest = plan.replace(network=plan.network.replace(publish=())), None
    entry.known(plan, digest)
    entry.argv = entry.argv or plan.agent.command
    check_access(plan)
    if options.session is not None:
        from coopfile.cli.exec import check_name
        from coopfile.cli.rejoin import rejoin

        check_name(options.session)
        status = rejoin(options, project, plan, timeout, entry)
        if status is not None:
            return status
        from coopfile.cli.sessions import run_in

        return run_in(options, project, plan, timeout, entry)
    if options.ttl is not None:
        raise UsageError("--ttl is of a session, and --session names none", "add --session NAME")
    if not prefers_native(plan):
        from coopfile.cli.elsewhere import run_elsewhere

        return run_elsewhere(plan, project, options, timeout, entry)
    return run_native(plan, project, options, timeout, entry)


def run_native(plan: Plan, project: Project, options: RunOptions, timeout: float | None, entry: Entry) -> int:
    """Run the command in namespaces; where this machine has none, on what else the plan allows."""
    from coopfile.native import kept, running

    entry.backend = "native"
    if plan.network.mode == "proxy":
        startup.load_more("proxy")
    try:
        prepared = prepare(plan, project, os.environ, tuple(options.command))
        if plan.network.mode == "proxy":
            from coopfile import listed

            launch = prepared.launch.replace(listed=listed.written(plan, project, os.environ))
            prepared = prepared.replace(launch=launch, log=log(plan, project, os.environ))
        layout = prepared.layout
        announced = running.announce(directories(os.environ).state, layout.writable, layout.guarded)
        try:
            lost = kept.make(prepared.launch)  # `coop rm` leaves alone from here on what this run uses
            if not options.quiet:
                tell_backend("native (namespaces)")
                tell_weakenings(plan, (*prepared.weakenings, *lost), options.verbose)
                for skipped in layout.skipped if options.verbose else ():
                    say(f"skipped: {skipped}")
            startup.keep(options, project, plan, prepared)
            outcome = _run(prepared, timeout)
        finally:
            running.leave(announced)
    except SettingError as error:
        raise written(error, project, options) from None
    except CoopError as error:
        if plan.sandbox.backend == ("native",) and plan.sandbox.fallback == "refuse":
            raise
        if not native_is_impossible():
            raise
        from coopfile.cli.elsewhere import run_elsewhere

        return run_elsewhere(plan, project, options, timeout, entry, without={"native": error})
    for note in outcome.notes:
        say(note)
    return outcome.status


def written(error: SettingError, project: Project, options: RunOptions) -> CoopError:
    """Return an error of a setting with its place in the Coopfile, if the plan is of one."""
    if options.plan is not None:
        return error
    from coopfile.cli.options import request
    from coopfile.cli.written import explain
    from coopfile.compiling import compile_project

    return explain(error, compile_project(request(options), project=project))


def _run(prepared: Prepared, timeout: float | None) -> Outcome:
    """Run what is prepared, with a directory of the store for what is written if this kernel needs one."""
    from coopfile.native import runner

    root = prepared.layout.root
    if not root.needs_disk():
        return runner.run(prepared, timeout=timeout)
    from coopfile.rootfs.store import Store

    with Store(directories(os.environ).rootfs).scratch() as place:
        real = os.path.realpath(place)
        upper, work = f"{real}/upper", f"{real}/work"
        for path in (upper, work):
            os.mkdir(path, 0o755)
        layout = prepared.layout.replace(root=root.replace(upper=upper, work=work))
        return runner.run(prepared.replace(layout=layout), timeout=timeout)


def recall(project: Project, options: CommandOptions) -> Plan:
    """Return the project's plan, from the cache if nothing it depends on has changed."""
    return recalled(project, options)[0]


def recalled(project: Project, options: CommandOptions) -> tuple[Plan, str | None]:
    """Do what ``recall`` does, and return the plan's digest, too."""
    own = directories(os.environ)
    key = cache.key(project, options.compile_options, os.environ)
    found = cache.load(own.cache, key)
    if found is not None:
        return found
    from coopfile.plan.canonical import digest

    plan = _compiled(project, options) if options.plan is None else _given(project, options)
    cache.store(own.cache, key, plan, named := digest(plan))
    return plan, named


def _compiled(project: Project, options: CommandOptions) -> Plan:
    from coopfile.cli.options import request
    from coopfile.compiling import compile_project

    compiled = compile_project(request(options), project=project)
    require_approval(compiled)
    return compiled.plan


def _given(project: Project, options: CommandOptions) -> Plan:
    """Return the plan on the command line: the caller's own word, as far as their ceiling goes."""
    from coopfile.compiling import hold_to_ceiling
    from coopfile.plan.canonical import from_json

    if options.file or options.identity or options.assignments or options.place != "direct":
        raise UsageError("--plan is a whole plan: -f, --as, --place and --set do not go with it")
    assert options.plan is not None
    plan = from_json(options.plan, "--plan")
    hold_to_ceiling(plan, project)
    return plan


def require_approval(compiled: Compiled) -> None:
    """Ask on a terminal whether the project may widen its sandbox; elsewhere refuse if it does."""
    from coopfile.access import approval

    directory = approvals(os.environ)
    try:
        approval.require(compiled, directory)
    except approval.ApprovalError as needed:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        if not _is_granted(compiled, needed):
            needed.decision = "declined"
            raise
        approval.approve(compiled, directory)


def _is_granted(compiled: Compiled, needed: CoopError) -> bool:
    from coopfile.cli.output import safe

    question = f"allow this for {safe(compiled.project.root)}? [y/N] "
    sys.stderr.write("\n".join(map(safe, needed.message.split("\n"))) + f"\n{question}")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def tell_backend(title: str) -> None:
    """Say what isolates the command: on a terminal with a sign, elsewhere in plain words."""
    startup.tell(f"🔒 {title}\n" if sys.stderr.isatty() and _shows_signs() else f"coop: {title}\n")


def _shows_signs() -> bool:
    return (sys.stderr.encoding or "").lower().replace("-", "") == "utf8"


def tell_weakenings(plan: Plan, weakenings: Sequence[Weakening], verbose: int) -> None:
    """Say what of the plan is not kept."""
    for weakening in (*weakenings, *_unkept(plan)):
        say(f"weaker than the plan: {weakening.key}: {weakening.text}")
        if verbose and weakening.remedy:
            say(f"  to have it: {weakening.remedy}")


def _unkept(plan: Plan) -> tuple[Weakening, ...]:
    """Return what was asked for and is not given; of what every plan has, `coop status` tells."""
    unmapped = plan.network.publish and plan.network.mode == "host"
    if plan.session.commit == "never" and not (plan.session.caches or unmapped):
        return ()
    from coopfile.plan.promises import unkept

    return unkept(plan)


def progress(options: CommandOptions) -> tuple[Callable[[str], None], Callable[[str], None] | None]:
    """Return what hears of what takes long, and of each line of an engine meanwhile: ``engines.run.run``."""
    shows = not options.quiet and (options.verbose > 0 or sys.stderr.isatty())
    return (lambda _: None) if options.quiet else say, _show if shows else None


def _show(line: str) -> None:
    """Show a line of an engine's output, of which a terminal must act on nothing."""
    from coopfile.cli.output import safe

    text = safe(line)
    startup.tell(f"  {text[:_WIDEST]}{'…' * (len(text) > _WIDEST)}\n")


def say(text: str) -> None:
    """Tell a person something, on standard error."""
    from coopfile.cli.output import safe

    startup.tell(f"coop: {safe(text)}\n")
