"""Running a command with exactly the environment of a plan, as argv.

Values that come from the host may be secret, and argv is for everyone to see: those
are inherited. ``env -i`` cannot keep some variables, so a shell first names all others.
"""

from __future__ import annotations

from coopfile.errors import CoopError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ENV = "/usr/bin/env"

# Variables of the shell itself: it sets them, or does not let them be set.
_SHELLS_OWN = frozenset(
    (
        *("BASHOPTS", "EUID", "IFS", "OLDPWD", "PPID", "PWD", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL"),
        *("UID", "_"),
    )
)

# A line of a value may look like a variable: then a name that does not exist is unset.
_CLEAN = """\
set -f
IFS='
'
{prefix}names=$({env} | LC_ALL=C /usr/bin/sed -n 's/^\\([^=][^=]*\\)=.*/\\1/p') || exit 125
for {prefix}name in ${prefix}names; do
case ${prefix}name in {kept}) ;; *) set -- -u "${prefix}name" "$@" ;; esac
done
exec {env} "$@"
"""


def with_environment(
    argv: Sequence[str], literals: Mapping[str, str], inherited: Mapping[str, str]
) -> tuple[str, ...]:
    """Return argv that runs ``argv`` with ``literals`` and nothing else but what is ``inherited``.

    ``inherited`` gives the host's variable for each variable that has its value; what the
    host does not have stays unset. Names are those that the language takes: letters,
    digits and ``_``. Raises CoopError for those that a shell has for itself.
    """
    values = [f"{name}={value}" for name, value in sorted(literals.items())]
    if not inherited:
        return (_ENV, "-i", *values, *argv)
    for name, host in inherited.items():
        if _SHELLS_OWN.intersection((name, host)):
            own = name if name in _SHELLS_OWN else host
            raise CoopError(
                f"env.{name}: the value of {host} cannot be passed on: {own} is a variable of the shell",
                f"write the value: env.{name} = ...",
            )
    names, prefix = sorted(inherited), "coop_"
    while any(known.startswith(prefix) for known in (*inherited, *inherited.values())):
        prefix = f"_{prefix}"
    # In two steps, so that two variables may swap their values.
    lines = [f"unset {prefix}{name}" for name in names]
    lines += [f'[ -z "${{{inherited[name]}+x}}" ] || {prefix}{name}=${inherited[name]}' for name in names]
    lines += [f"unset {name}" for name in names]
    lines += [f'[ -z "${{{prefix}{name}+x}}" ] || export {name}="${prefix}{name}"' for name in names]
    script = "\n".join(lines) + "\n" + _CLEAN.format(env=_ENV, kept="|".join(names), prefix=prefix)
    return ("/bin/sh", "-c", script, "coop", *values, *argv)
