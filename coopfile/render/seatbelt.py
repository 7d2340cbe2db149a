"""Plan, launch and facts to a Seatbelt profile and the ``sandbox-exec`` argv that applies it.

Pure: nothing of macOS is needed. Paths inside the sandbox are those of the host, and so
are ids, processes and /tmp; ``weakenings`` says what that costs. The home is the
caller's own by its path, since that is where ``~/`` of the plan leads to, but nothing of
it can be read or written that the plan does not give.
"""

from __future__ import annotations

import functools

from coopfile import data
from coopfile.errors import CoopError
from coopfile.plan.canonical import digest
from coopfile.plan.launch import Weakening, expand, inside
from coopfile.plan.promises import unkept
from coopfile.plan.reach import variables
from coopfile.render import sbpl
from coopfile.render.environment import with_environment
from coopfile.render.seatbelt_files import Given, given, real_home, real_path, rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    import jinja2

    from coopfile.plan.launch import Launch
    from coopfile.plan.model import Plan
    from coopfile.render.facts import Facts

# Not looked up in PATH: another program of that name would not confine anything.
SANDBOX_EXEC = "/usr/bin/sandbox-exec"

PROFILES = ("restrictive", "permissive")

# Where the host's own tools are on a Mac, beside the places of every system.
_PATH_FIRST = "/opt/homebrew/bin:/opt/homebrew/sbin"

_PADDED = 5
"""Profiles of one's own may use ALLOWED_DIR_0 to _4 without knowing how many there are."""


def profile(plan: Plan, launch: Launch, facts: Facts) -> str:
    """Return the text of the built-in profile that the plan asks for.

    Its parameters are those of ``argv`` for the same plan, launch and facts. Raises
    CoopError for what Seatbelt cannot keep apart, and for a profile of one's own, which
    is not coop's to write.
    """
    _refuse(plan, facts)
    if plan.sandbox.profile not in PROFILES:
        raise CoopError(
            f"sandbox.profile is a file of your own: {plan.sandbox.profile}",
            'coop writes the profiles "restrictive" and "permissive"',
        )
    gives = given(launch, facts)
    writer = sbpl.Writer(_parameters(launch, facts, gives))
    everywhere = plan.sandbox.profile == "permissive"
    return (
        _templates()
        .get_template(f"{plan.sandbox.profile}.sb.j2")
        .render(
            tag=sbpl.quote(tag(plan)),
            files=rules(launch, facts, gives, writer, everywhere=everywhere),
            network=plan.network.mode,
            port=facts.proxy,
        )
    )


@functools.cache
def _templates() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: data.text(f"templates/seatbelt/{name}")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # SBPL, not HTML; every value is an expression that sbpl wrote
    )


def argv(plan: Plan, launch: Launch, facts: Facts, profile_path: str) -> tuple[str, ...]:
    """Return argv that runs the launch's command under the profile at ``profile_path``.

    It sets the environment; the caller sets the directory (``directory``). Values of the
    host's variables are inherited, not written. With a profile of one's own,
    ``profile_path`` does not count.
    """
    _refuse(plan, facts)
    gives = given(launch, facts)
    if plan.sandbox.profile in PROFILES:
        parameters = _parameters(launch, facts, gives)
        for root in gives.writable():
            if inside(real_path(facts, profile_path), root):
                raise CoopError(
                    f"the profile {profile_path} could be changed by the sandbox, for the next run",
                    f"keep it outside of {root}",
                )
    else:
        parameters = _seed_parameters(launch, facts, gives)
        profile_path = _own_profile(plan, launch)
    definitions = [part for item in parameters.items() for part in ("-D", "=".join(item))]
    inherited = dict(launch.inherited)
    literals = {
        name: value for name, value in environment(plan, launch, facts).items() if name not in inherited
    }
    command = (SANDBOX_EXEC, *definitions, "-f", profile_path, "--", *launch.argv)
    return with_environment(command, literals, inherited)


def environment(plan: Plan, launch: Launch, facts: Facts) -> dict[str, str]:
    """Return the command's whole environment, the values of the host's variables included."""
    host = launch.host
    own = {
        "HOME": host.home,
        "USER": host.user,
        "LOGNAME": host.user,
        "PWD": directory(launch),
        "COOP_WORKSPACE": host.workspace,
        "PATH": f"{_PATH_FIRST}:{launch.environment.get('PATH', '/usr/bin:/bin')}",
    }
    if facts.temporary:
        own["TMPDIR"] = _temporary(facts)
    if plan.sandbox.profile == "restrictive":
        own.update(_git(launch, facts))
    if plan.network.mode == "proxy" and facts.proxy is not None:
        own.update(variables(facts.proxy))
    for variable in plan.env:
        own.pop(variable.name, None)
    return {**launch.environment, **own}


def _git(launch: Launch, facts: Facts) -> dict[str, str]:
    """Return the variable that tells git of what it can read of its files in the home.

    It ends with an error over one that is there and that it may not read (EPERM).
    """
    files = [f"{launch.host.home}/{name}" for name in (".config/git/config", ".gitconfig")]
    sources = [mount.source for mount in given(launch, facts).mounts]
    seen = [path for path in files if any(inside(real_path(facts, path), source) for source in sources)]
    if len(seen) == len(files):
        return {}
    return {"GIT_CONFIG_GLOBAL": seen[0] if seen else "/dev/null"}


def directory(launch: Launch) -> str:
    """Return the host's path of the launch's directory, where the command has to start."""
    host = launch.host
    return host.directory if inside(host.directory, host.workspace) else host.workspace


def skipped(launch: Launch, facts: Facts) -> tuple[str, ...]:
    """Return which of the plan's paths and variables this host does not have."""
    return launch.skipped + given(launch, facts).skipped


def tag(plan: Plan) -> str:
    """Return what every violation's message in the system log ends with."""
    return f"coop_{digest(plan).partition(':')[2][:16]}"


def weakenings(plan: Plan, launch: Launch, facts: Facts) -> tuple[Weakening, ...]:
    """Return what Seatbelt does not keep of the plan. Raises CoopError for what is refused."""
    _refuse(plan, facts)
    found = [
        Weakening(
            "sandbox.min_isolation",
            "a policy of the host's kernel only: processes, ids and shared memory are the host's own",
            "apple, docker or podman",
        )
    ]
    if plan.sandbox.profile not in PROFILES:
        text = f"files and network are what {plan.sandbox.profile} says: coop does not know its rules"
        own = real_path(facts, _own_profile(plan, launch))
        if any(inside(own, root) for root in given(launch, facts).writable()):
            text += ", nor whether they let the sandbox change that file for the next run"
        found.append(Weakening("sandbox.profile", text, '"restrictive" or "permissive"'))
    if plan.workspace.path not in ("host", launch.host.workspace):
        text = f"the workspace is at {launch.host.workspace}, as on the host"
        found.append(Weakening("workspace.path", text, 'workspace.path = "host"'))
    if plan.session.user == "root":
        text = f"inside, you are {launch.host.user} as outside"
        found.append(Weakening("session.user", text, 'session.user = "me"'))
    if plan.network.mode in ("none", "proxy"):
        text = "there is no loopback either: the only one is the host's"
        found.append(Weakening("network.mode", text))
    if plan.network.mode == "proxy":
        text = (
            f"port {facts.proxy} of this machine's loopback is let through, which is that of `coop proxy` "
            "while it runs and of whoever takes it afterwards; every user of this machine can use that proxy"
        )
        found.append(Weakening("network.mode", text, "end the sandbox before `coop proxy`"))
    if plan.network.publish:
        ports = ", ".join(str(port) for port in plan.network.publish)
        on_host = plan.network.mode == "host"
        text = "not mapped; what listens does so on the host itself" if on_host else "not offered on the host"
        found.append(Weakening("network.publish", f"{ports}: {text}"))
    found += _limits(plan)
    if plan.session.persist:
        paths = ", ".join(plan.session.persist)
        text = f"{paths} below the home: of it, only what files.read and files.write name is there"
        found.append(Weakening("session.persist", text, "files.write, or keep it in the workspace"))
    if plan.session.caches:
        text = f"{', '.join(plan.session.caches)}: not shared between runs, for nothing can be mounted"
        found.append(Weakening("session.caches", text, "apple, docker or podman"))
    if plan.sandbox.runtime is not None:
        text = f"{plan.sandbox.runtime}: not used; Seatbelt has no containers"
        found.append(Weakening("sandbox.runtime", text))
    for variable in plan.env:
        if variable.name.startswith("DYLD_"):
            text = "macOS takes it away from what is started through its own programs, as env is"
            found.append(Weakening(f"env.{variable.name}", text, "set it in the command, after sh -c"))
    known = {weakening.key for weakening in found}
    found += [weakening for weakening in unkept(plan) if weakening.key not in known]
    return tuple(found)


def _limits(plan: Plan) -> list[Weakening]:
    remedy = "apple, docker or podman"
    names = ["memory", "pids"] if plan.limits.cpus is None else ["memory", "cpus", "pids"]
    found = [Weakening(f"limits.{name}", "not enforced: Seatbelt limits nothing", remedy) for name in names]
    text = "not enforced: temporary directories are the host's own, shared with your other programs, and stay"
    return [*found, Weakening("limits.tmp", text, remedy)]


def _refuse(plan: Plan, facts: Facts) -> None:
    """Refuse what Seatbelt would only pretend to do, or do by giving more than the plan."""
    wants = [
        ("base.image", plan.base.image),
        *((f"packages.{manager}", getattr(plan.packages, manager)) for manager in plan.packages._fields),
        ("setup.run", plan.setup.run),
        ("agent.install", plan.agent.install),
    ]
    for key, value in wants:
        if value:
            raise CoopError(
                f"{key} needs a root file system, and Seatbelt has the host's only",
                "use docker, podman or apple; or take it out",
            )
    if plan.sandbox.min_isolation != "namespace":
        raise CoopError(
            f"sandbox.min_isolation is {plan.sandbox.min_isolation}, and Seatbelt is a policy only",
            "use apple, or docker or podman with such a runtime",
        )
    if plan.network.mode == "veth":
        raise CoopError(
            'network.mode = "veth" cannot be had: Seatbelt does not tell the internet from your LAN',
            'use "none" or "host", or another back end',
        )
    if plan.network.mode == "proxy" and facts.proxy is None:
        raise CoopError(
            'network.mode = "proxy": the profile names the port of a proxy there, and that is not known',
            'start one on that machine: coop proxy --port 8877; and name the port in --facts: "proxy": 8877',
        )


def _parameters(launch: Launch, facts: Facts, gives: Given) -> dict[str, str]:
    """Return the roots that the profile names by parameters, each path once."""
    parameters = {"WORKSPACE": gives.mounts[0].source, "HOME": real_home(launch, facts)}
    counts: dict[str, int] = {}
    for kind, path in (
        *(("WRITE" if mount.write else "READ", mount.source) for mount in gives.mounts[1:]),
        *(("TEMPORARY", path) for path in gives.temporary),
    ):
        if path not in parameters.values():
            number = counts.get(kind, 0)
            counts[kind] = number + 1
            parameters[f"{kind}_{number}"] = path
    return parameters


def _seed_parameters(launch: Launch, facts: Facts, gives: Given) -> dict[str, str]:
    """Return what profiles of one's own are told; unused directories are /dev/null."""
    host = launch.host
    allowed = [mount.source for mount in gives.mounts[1:] if mount.write]
    allowed += ["/dev/null"] * (_PADDED - len(allowed))
    parameters = {
        "TARGET_DIR": gives.mounts[0].source,
        "TMP_DIR": _temporary(facts) if facts.temporary else "/dev/null",
        "HOME_DIR": host.home,
        "CACHE_DIR": f"{host.home}/Library/Caches",
        **{f"ALLOWED_DIR_{number}": path for number, path in enumerate(allowed)},
    }
    for value in parameters.values():
        sbpl.quote(value)  # refuses control characters
    return parameters


def _own_profile(plan: Plan, launch: Launch) -> str:
    path = plan.sandbox.profile
    if path.startswith("./"):
        return f"{launch.host.workspace}/{path[2:]}"
    return expand(path, launch.host.home)


def _temporary(facts: Facts) -> str:
    """Return the caller's own temporary directory: the one that lies deepest."""
    return max((real_path(facts, path) for path in facts.temporary), key=lambda path: path.count("/"))
