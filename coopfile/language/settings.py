"""The one table of settings.

Validation, merging, comparing, the environment's and the command line's
overrides, the JSON Schema and the reference in the docs are all read off it.

- ``type`` checks a TOML value and turns it into the plan's typed form.
- ``default`` is written as it would be in a Coopfile; None is "not set".
- ``merge``: a later layer REPLACEs the value, ADDs to the list, or MERGEs the
  table key by key.
- ``wider`` says which direction gives the sandbox more.
"""

from __future__ import annotations

from coopfile.language import directions as wider
from coopfile.language import values as types
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REPLACE = "replace"
ADD = "add"
MERGE = "merge"

# Read-only in every sandbox, whether they exist yet or not: what the host later runs,
# or reads as configuration, from the workspace. A path that does not exist is held
# from its first missing component.
BUILT_IN_PROTECT = (
    ".claude/agents",
    ".claude/commands",
    ".claude/hooks",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".claude/skills",
    ".codex",
    ".cursor",
    ".devcontainer",
    ".envrc",
    ".gemini",
    ".git/commondir",
    ".git/config",
    ".git/config.worktree",
    ".git/hooks",
    ".git/modules",
    ".gitmodules",
    ".husky",
    ".idea",
    ".mcp.json",
    ".vscode",
    "Coopfile",
    "Coopfile.local",
    "Coopfile.lock",
)

BUILT_IN_PERSIST = (".claude",)

BACKENDS = ("native", "docker", "podman", "apple", "seatbelt")
NETWORK_MODES = ("none", "proxy", "veth", "host")
TRUST_LEVELS = ("owner", "full", "inner", "familiar", "public")


class Setting(Record):
    """One key of the language; see the module's docstring for the fields."""

    key: str
    type: types.ValueType
    default: Any
    merge: str
    wider: wider.Direction
    help: str
    example: str


def _strings(key: str, kind: types.ValueType, help: str, example: str, **more: Any) -> Setting:
    """Make the row of a list that later layers add to and whose order means nothing."""
    defaults = {"default": (), "wider": wider.GROWING, **more}
    return Setting(key, types.ListOf(kind, ordered=False), merge=ADD, help=help, example=example, **defaults)


def _packages(manager: str, example: str) -> Setting:
    return _strings(
        f"packages.{manager}",
        types.PackageName(),
        f"Packages that {manager} installs into the root file system when it is built.",
        example,
        wider=wider.GROWING_NAMES,
    )


_IMAGE = types.Image()
_MODE = types.Choice(*NETWORK_MODES, aliases={"bridge": "veth"})

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "base.image",
        _IMAGE,
        None,
        REPLACE,
        wider.CHOSEN,
        "An OCI image to build the root file system from: a reference, or a file, as `oci:PATH`, "
        "`oci-archive:PATH` or `docker-archive:PATH`. Without it: the host's own tools, read-only.",
        '"debian:bookworm-slim"',
    ),
    _packages("apt", '["git", "ripgrep"]'),
    _packages("apk", '["git", "ripgrep"]'),
    _packages("dnf", '["git", "ripgrep"]'),
    _packages("pip", '["pytest==8.4.1"]'),
    _packages("npm", '["typescript"]'),
    _packages("cargo", '["ripgrep"]'),
    Setting(
        "setup.run",
        types.ListOf(types.ShellCommand(), ordered=True),
        (),
        ADD,
        wider.CHOSEN,
        "Shell commands run in order when the root file system is built, after the packages.",
        '["git config --system init.defaultBranch main"]',
    ),
    Setting(
        "setup.network",
        _MODE,
        "veth",
        REPLACE,
        wider.Ranked(*NETWORK_MODES),
        "The network while packages, set-up and agent are installed.",
        '"none"',
    ),
    Setting(
        "agent.install",
        types.ShellCommand(),
        None,
        REPLACE,
        wider.CHOSEN,
        "A shell command that installs the agent, the last step of the build.",
        '"npm install -g @anthropic-ai/claude-code"',
    ),
    Setting(
        "agent.command",
        types.ListOf(types.Argument(), ordered=True),
        (),
        REPLACE,
        wider.DIFFERS,
        "What `coop run` starts when it is given no command: a program and its arguments. Default: a shell.",
        '["claude"]',
    ),
    Setting(
        "workspace.path",
        types.WorkspacePath(),
        "/workspace",
        REPLACE,
        wider.DIFFERS,
        'Where the workspace is inside the sandbox; "host" keeps the path that it has on the host.',
        '"host"',
    ),
    _strings(
        "workspace.protect",
        types.RelativePath(),
        "Paths below the workspace that stay read-only, existing or not. Adds to the built-in list.",
        '["scripts/deploy.sh"]',
        default=BUILT_IN_PROTECT,
        wider=wider.SHRINKING,
    ),
    _strings(
        "files.read",
        types.HostPath(),
        "More of the host, read-only. `~/` is your home on the host and the sandbox's home inside.",
        '["~/.gitconfig"]',
        wider=wider.GROWING_READ,
    ),
    _strings(
        "files.write",
        types.HostPath(),
        "More of the host, read-write.",
        '["~/.cache/go-build"]',
    ),
    _strings(
        "files.hide",
        types.HideGlob(),
        "Files and directories of the workspace that are never visible: paths below it, or globs.",
        '["**/.env*"]',
        wider=wider.SHRINKING,
    ),
    Setting(
        "network.mode",
        _MODE,
        "none",
        REPLACE,
        wider.Ranked(*NETWORK_MODES),
        "none: loopback only. proxy: the hosts of `allow` only. veth: the internet, not your LAN nor "
        "this machine. host: the host's network.",
        '"veth"',
    ),
    _strings(
        "network.allow",
        types.HostPatternType(),
        "Proxy mode: the hosts that may be reached, and no others. `*.` stands for every subdomain; "
        "without a port, 80 and 443. An address of your network or machine has to be listed as such.",
        '["pypi.org", "*.github.com:443"]',
    ),
    _strings(
        "network.publish",
        types.PublishedPortType(),
        "Ports of the sandbox to offer on the host, on 127.0.0.1 unless an address is given.",
        '["3000", "127.0.0.1:8080:80"]',
    ),
    _strings(
        "session.persist",
        types.RelativePath(),
        "Directories below the sandbox's home that its next run finds again; no other project or user "
        'sees them, and they are none of yours. ".claude" is always in the list.',
        '[".claude", ".npm"]',
        default=BUILT_IN_PERSIST,
    ),
    Setting(
        "session.user",
        types.Choice("root", "me"),
        "root",
        REPLACE,
        wider.DIFFERS,
        "root: uid 0 inside, you outside. me: your own uid inside. Neither has a capability.",
        '"me"',
    ),
    Setting(
        "session.commit",
        types.Choice("never", "ask", "auto"),
        "never",
        REPLACE,
        wider.Ranked("never", "ask", "auto"),
        "Whether what a session has installed on an image is kept when coop stop, or a Python program, ends "
        "it, for the project's later runs. ask: asks on a terminal. auto: keeps it if it looks like that.",
        '"ask"',
    ),
    _strings(
        "session.caches",
        types.Choice("apt", "apk", "cargo", "dnf", "go", "npm", "pip"),
        "Named download caches that the sessions of a project share, below the home. System packages (apt, "
        "apk, dnf) are only installed when an image is built.",
        '["cargo", "pip", "npm"]',
    ),
    Setting(
        "env",
        types.Environment(),
        (),
        MERGE,
        wider.ENVIRONMENT,
        'Environment variables: a text, or { host = "NAME" } for the host\'s value, '
        "read at launch and never stored.",
        '{ EDITOR = "vi", ANTHROPIC_API_KEY = { host = "ANTHROPIC_API_KEY" } }',
    ),
    Setting(
        "limits.memory",
        types.Size(minimum="16m"),
        "2g",
        REPLACE,
        wider.ASCENDING,
        "Memory of the sandbox, its /tmp included.",
        '"512m"',
    ),
    Setting(
        "limits.cpus",
        types.Processors(),
        None,
        REPLACE,
        wider.ASCENDING,
        "How many processors' worth of time the sandbox may use; a fraction is allowed. Default: all.",
        "2",
    ),
    Setting(
        "limits.pids",
        types.Count(minimum=4, maximum=4194304),
        512,
        REPLACE,
        wider.ASCENDING,
        "How many processes and threads the sandbox may have at once.",
        "256",
    ),
    Setting(
        "limits.tmp",
        types.Size(minimum="1m"),
        "512m",
        REPLACE,
        wider.ASCENDING,
        "Size of everything writable that is thrown away: /tmp, the home, /dev/shm.",
        '"2g"',
    ),
    Setting(
        "limits.timeout",
        types.Duration(),
        "120s",
        REPLACE,
        wider.ASCENDING,
        "How long one tool call may take. `coop run` has no limit unless --timeout is given.",
        '"10m"',
    ),
    Setting(
        "limits.output",
        types.Size(minimum="1k"),
        "100k",
        REPLACE,
        wider.ASCENDING,
        "How much output one tool call returns; the tail is kept.",
        '"1m"',
    ),
    Setting(
        "sandbox.enabled",
        types.Flag(),
        True,
        REPLACE,
        wider.Ranked(True, False),
        "Whether tool calls are sandboxed at all. `coop run` always sandboxes.",
        "true",
    ),
    Setting(
        "sandbox.backend",
        types.Backends("auto", *BACKENDS),
        ("auto",),
        REPLACE,
        wider.BACKENDS,
        "What enforces the plan: a back end, or a list in order of preference. auto: the first that will do.",
        '["native", "podman"]',
    ),
    Setting(
        "sandbox.min_isolation",
        types.Choice("namespace", "userspace-kernel", "vm"),
        "namespace",
        REPLACE,
        wider.Ranked("vm", "userspace-kernel", "namespace"),
        "The weakest isolation that will do.",
        '"vm"',
    ),
    Setting(
        "sandbox.fallback",
        types.Choice("refuse", "host"),
        "refuse",
        REPLACE,
        wider.Ranked("refuse", "host"),
        "What happens when no back end will do: refuse, or run on the host with a warning every time.",
        '"refuse"',
    ),
    Setting(
        "sandbox.profile",
        types.Profile(),
        "restrictive",
        REPLACE,
        wider.PROFILE,
        "Seatbelt: restrictive, permissive, or the path of a profile of your own.",
        '"permissive"',
    ),
    Setting(
        "sandbox.runtime",
        types.RuntimeName(),
        None,
        REPLACE,
        wider.CHOSEN,
        "Container engines: the OCI runtime to use.",
        '"runsc"',
    ),
    Setting(
        "tools.confirm",
        types.Choice("ask", "never"),
        "ask",
        REPLACE,
        wider.Ranked("ask", "never"),
        "Whether a shell command in an interactive session is confirmed first.",
        '"never"',
    ),
)

BY_KEY: dict[str, Setting] = {setting.key: setting for setting in SETTINGS}
