"""What ``coop check`` looks at beyond compiling: every user's override, and what is probably not meant."""

from __future__ import annotations

from collections.abc import Iterator

from coopfile.compiling import Compiled
from coopfile.language.diagnostics import Diagnostic, Position
from coopfile.language.merging import Origin
from coopfile.plan.ceiling import exceeding
from coopfile.plan.model import Plan, leaf
from coopfile.plan.resolve import resolve

_SECRET_ENDINGS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS")
_SOCKET_PLACES = ("/run", "/var/run", "/tmp", "/var/tmp")
_ENGINES = {"auto", "docker", "podman"}


def warnings(compiled: Compiled) -> tuple[Diagnostic, ...]:
    """Return the warnings about a Coopfile that compiles, in the order of the language reference."""
    plan = compiled.plan
    found = (
        *_image(plan),
        *_sockets(plan),
        *_network(plan),
        *_secrets(plan),
        *_sandbox(plan),
    )
    located = tuple(
        _warning(code, message, help, position(compiled, key)) for key, code, message, help in found
    )
    return (*located, *_users(compiled))


def of_overrides(compiled: Compiled) -> tuple[Diagnostic, ...]:
    """Return the errors of overrides that contradict other layers, or exceed the reader's ceiling."""
    reading = compiled.reading
    found: list[Diagnostic] = []
    for user in reading.users:
        if user.override is not None:
            settings = reading.settings(user)
            found += (*reading.conflicts(settings), *exceeding(reading, settings, resolve(settings)))
    return tuple(dict.fromkeys(found))


def _warning(code: str, message: str, help: str | None, position: Position | None = None) -> Diagnostic:
    return Diagnostic("warning", code, message, help, position, None)


def position(compiled: Compiled, key: str) -> Position | None:
    """Return the line where a setting's value was written, if it was in a file."""
    origins: tuple[Origin, ...] = compiled.settings.origins(key)
    for origin in reversed(origins):
        if origin.line is not None:
            return Position(origin.source, origin.line, 1, 1)
    return None


_Found = Iterator[tuple[str, str, str, str | None]]


def _image(plan: Plan) -> _Found:
    if plan.base.image is not None:
        return
    for key in (
        "packages.apt",
        "packages.apk",
        "packages.dnf",
        "packages.pip",
        "packages.npm",
        "packages.cargo",
    ):
        if leaf(plan, key):
            yield key, "no-image", f"{key} has no effect without base.image", "name an image to install into"
    for key in ("setup.run", "agent.install"):
        if leaf(plan, key):
            yield key, "no-image", f"{key} has no effect without base.image", "name an image to run it in"


def _sockets(plan: Plan) -> _Found:
    for key in ("files.read", "files.write"):
        for path in leaf(plan, key):
            holds = path == "/" or any(
                place == path or place.startswith(path + "/") or path.startswith(place + "/")
                for place in _SOCKET_PLACES
            )
            if holds:
                yield (
                    key,
                    "sockets",
                    f"{key} gives {path}, which can hold sockets of services on this machine",
                    "read-only does not stop a program from connecting to them; name single files instead",
                )


def _network(plan: Plan) -> _Found:
    network = plan.network
    if network.allow and "proxy" not in (network.mode, plan.setup.network):
        yield (
            "network.allow",
            "unused",
            f'network.allow has no effect while network.mode is "{network.mode}"',
            'network.mode = "proxy" lets these hosts through and no others',
        )
    if network.mode == "proxy" and not network.allow:
        yield (
            "network.mode",
            "unused",
            'network.mode is "proxy" and network.allow is empty, so nothing can be reached',
            'name hosts in network.allow, or say network.mode = "none"',
        )
    if network.publish and network.mode == "host":
        yield (
            "network.publish",
            "unused",
            'network.publish has no effect while network.mode is "host": the ports are the machine\'s own',
            None,
        )


def _secrets(plan: Plan) -> _Found:
    for variable in plan.env:
        if variable.value and variable.name.upper().endswith(_SECRET_ENDINGS):
            yield (
                "env",
                "secret",
                f"env.{variable.name} looks like a secret, and its value is in the file",
                f'{variable.name} = {{ host = "{variable.name}" }} reads it at launch and stores it nowhere',
            )


def _sandbox(plan: Plan) -> _Found:
    sandbox = plan.sandbox
    if not sandbox.enabled:
        yield (
            "sandbox.enabled",
            "off",
            "sandbox.enabled is false, so tool calls run on this machine itself",
            "`coop run` sandboxes all the same",
        )
    if sandbox.fallback == "host":
        yield (
            "sandbox.fallback",
            "off",
            'sandbox.fallback is "host", so without a back end commands run unsandboxed',
            'sandbox.fallback = "refuse" is the default',
        )
    if sandbox.runtime is not None and not _ENGINES & set(sandbox.backend):
        yield (
            "sandbox.runtime",
            "unused",
            "sandbox.runtime has no effect: no back end in sandbox.backend is a container engine",
            None,
        )
    if sandbox.profile != "restrictive" and not {"auto", "seatbelt"} & set(sandbox.backend):
        yield (
            "sandbox.profile",
            "unused",
            "sandbox.profile has no effect: sandbox.backend does not name seatbelt",
            None,
        )


def _users(compiled: Compiled) -> Iterator[Diagnostic]:
    users = compiled.reading.users
    owners = [user for user in users if user.trust == "owner"]
    if len(owners) > 1:
        names = ", ".join(user.name for user in owners)
        yield _warning(
            "owners", f"there are several owners: {names}", "an owner's tool calls are not sandboxed"
        )
    if users and not owners and compiled.plan.sandbox.enabled:
        yield _warning(
            "owners",
            "users are declared and none of them is the owner",
            'whoever sits at the terminal is; give one user trust = "owner" and match = ["terminal:default"]',
        )
