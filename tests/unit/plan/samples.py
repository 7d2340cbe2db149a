"""One plan that the tests vary: a narrow one, with something in every list."""

from __future__ import annotations

from coopfile.language.items import HostPattern, ImageReference, PublishedPort, Variable
from coopfile.plan.model import (
    Access,
    Agent,
    Base,
    Files,
    Limits,
    Network,
    Packages,
    Plan,
    Sandbox,
    Session,
    Setup,
    Tools,
    Workspace,
)

PLAN = Plan(
    base=Base(image=ImageReference("docker.io", "library/debian", "bookworm-slim")),
    packages=Packages(apt=("git",), apk=(), dnf=(), pip=(), npm=(), cargo=()),
    setup=Setup(run=("true",), network="none"),
    agent=Agent(install="npm install", command=("claude", "-p")),
    workspace=Workspace(path="/workspace", protect=(".git/hooks", "Coopfile")),
    files=Files(read=("~/.gitconfig",), write=("~/.cache/go",), hide=("**/.env*",)),
    network=Network(
        mode="none",
        allow=(HostPattern("pypi.org"),),
        publish=(PublishedPort("127.0.0.1", 3000, 3000),),
    ),
    session=Session(persist=(".claude",), user="root", commit="never", caches=("pip",)),
    env=(Variable("EDITOR", "vi", None), Variable("TOKEN", None, "API_TOKEN")),
    limits=Limits(memory=2**31, cpus=2000, pids=512, tmp=2**29, timeout=120_000, output=100 * 1024),
    sandbox=Sandbox(
        enabled=True,
        backend=("apple",),
        min_isolation="vm",
        fallback="refuse",
        profile="restrictive",
        runtime="runsc",
    ),
    tools=Tools(confirm="ask"),
)
ACCESS = Access(
    user="bob",
    trust="familiar",
    place="direct",
    tools=("read_file",),
    stores=("social",),
    sandboxed=True,
)
