"""What a sandbox on the host's own tools shows of the host without being asked.

The native runner builds from these lists and ``explain`` answers from them.
Everything here is as the host has it, where the host has it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# What passes from the caller's environment without being named: how to talk to the
# terminal and in which language. All else is named in [env] or absent.
PASSED = (
    "COLORTERM",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "NO_COLOR",
    "TERM",
    "TZ",
)
PASSED_PREFIX = "LC_"

# Read-only.
TOOLS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")

# What programs need of /etc; nothing here holds secrets of an account or a service, not even
# root's own, which root's sandbox could read (/etc/ssl/private).
ETC = (
    "alternatives",
    "bash.bashrc",
    "crypto-policies",
    "fonts",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "localtime",
    "mime.types",
    "os-release",
    "perl",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)

# Of /etc, but written for the sandbox, so that no account of the host shows.
ETC_OWN = ("group", "host.conf", "hostname", "hosts", "nsswitch.conf", "passwd")

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

# Of /dev, made for the sandbox.
DEVICES_OWN = ("fd", "ptmx", "pts", "stderr", "stdin", "stdout")

# Of /proc: memory, keys, devices and timers of the machine. What the caller cannot read needs no
# mask; but started by root, the sandbox still owns root's files.
PROC_MASKED = (
    "acpi",
    "asound",
    "kallsyms",
    "kcore",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "sched_debug",
    "scsi",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
    "vmallocinfo",
)

# Writable, empty at the start, gone at the end; the home is one more.
SCRATCH = ("/tmp", "/var/tmp", "/dev/shm", "/run")

# Below the caller's home: what the host later runs or reads as configuration. It counts when
# `files.write` gives a directory that holds it, not when it gives the path itself.
HOME_PROTECT = (
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".config/autostart",
    ".config/containers",
    ".config/fish",
    ".config/git",
    ".config/systemd",
    ".docker",
    ".gitconfig",
    ".local/bin",
    ".local/share/containers",
    ".local/share/docker",
    ".pam_environment",
    ".profile",
    ".ssh",
    ".xprofile",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
)


def passed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what passes of the caller's environment without being named."""
    return {
        name: value for name, value in environment.items() if name in PASSED or name.startswith(PASSED_PREFIX)
    }
