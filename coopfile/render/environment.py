"""Running a command with exactly the environment of a plan, as argv.

Values that come from the host may be secret, and argv is for everyone to see: those
are inherited. ``env -i`` cannot keep some variables, so a shell first names all others.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ENV = "/usr/bin/env"

# A line of a value may look like a variable: then a name that does not exist is unset.
_CLEAN = """\
set -f
IFS='
'
coop_names=$({env} | LC_ALL=C /usr/bin/sed -n 's/^\\([^=][^=]*\\)=.*/\\1/p') || exit 125
for coop_name in $coop_names; do
case $coop_name in {kept}) ;; *) set -- -u "$coop_name" "$@" ;; esac
done
exec {env} "$@"
"""


def with_environment(
    argv: Sequence[str], literals: Mapping[str, str], inherited: Mapping[str, str]
) -> tuple[str, ...]:
    """Return argv that runs ``argv`` with ``literals`` and nothing else but what is ``inherited``.

    ``inherited`` gives the host's variable for each variable that has its value; what the
    host does not have stays unset. Names are those that the language takes: letters,
    digits and ``_``.
    """
    values = [f"{name}={value}" for name, value in sorted(literals.items())]
    if not inherited:
        return (_ENV, "-i", *values, *argv)
    names = sorted(inherited)
    # In two steps, so that two variables may swap their values.
    lines = [f"unset coop_{name}" for name in names]
    lines += [f'[ -z "${{{inherited[name]}+x}}" ] || coop_{name}=${inherited[name]}' for name in names]
    lines += [f"unset {name}" for name in names]
    lines += [f'[ -z "${{coop_{name}+x}}" ] || export {name}="$coop_{name}"' for name in names]
    script = "\n".join(lines) + "\n" + _CLEAN.format(env=_ENV, kept="|".join(names))
    return ("/bin/sh", "-c", script, "coop", *values, *argv)
