"""What coop runs in a container of a session beside the commands: texts for ``/bin/sh``, and nothing else.

Engines start a process in a container, and that is all: they end none of them, tell no more than an
exit status, and lose sight of what a command leaves. Each command has a variable with a token of its
own, which what it starts inherits; the rest is looked for by who started it. The texts use what POSIX
calls for that is built into every shell, for the image may have nothing else.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

SHELL = "/bin/sh"
TOKEN = "COOP_EXEC"  # the variable by which a command's processes are known
OTHER = 125  # the exit status where the container is not what it was, and the command not started
BARRED = 126  # the same where the directory that it is to start in cannot be entered; also a command's own
TYPES = ("file", "link", "directory", "pipe", "socket", "device")  # what is told of paths
_LONGEST = 18  # digits of a number

# Waits until its input ends, which the kernel ends with the process that keeps the session. A shell
# that waits for a child reaps what others leave to it, where the engine has no init for that.
_WAITING = (
    'exec 3<&0; while read -r line; do :; done <&3 & began; echo "$1 $$ $! $began"; '
    "exec >/dev/null 2>&1; wait $!"
)
# When the first process started: another one has another time, if an engine starts the container again.
_BEGAN = "began() { read -r line </proc/1/stat; set -- ${line##*) }; began=${20}; }; "

# `exec` of some shells takes options. A terminal has its size from the start, if the image has stty:
# some engines set it a moment later.
_ENTERING = (
    'began; if [ "$began" != "$1" ]; then exit 125; fi; '
    'if [ "$2" ]; then stty rows "$2" cols "$3" 2>/dev/null; fi; shift 3; '
    'cd -- "$1" 2>/dev/null || exit 126; shift; unset OLDPWD SHLVL; '
    'case $1 in -*) echo "coop: $1: begins with a dash" >&2; exit 127;; esac; exec "$@"'
)

# Sets `table` to "pid:parent:group:start" of every process but this one and those that have ended, and
# `found` to the pids of those that have the variable or are below one that has. With `strays` those count,
# too, that nobody knows the start of: what has lost its parent, has no such variable of any command, and
# is younger than the command. `read` drops zero bytes, or takes them for nothing.
_LOOKING = """
look() {
  table= found=' ' first= lost=
  for place in /proc/[0-9]*; do
    number=${place#/proc/}
    if [ "$number" = "$$" ]; then continue; fi
    text=
    while read -r line || [ -n "$line" ]; do text="$text $line"; done <"$place/stat"
    text=${text##*) }
    set -- $text
    if [ $# -lt 20 ]; then continue; fi
    case $1 in [ZX]) continue;; esac
    table="$table $number:$2:$3:${20}"
    mine= any=
    while read -r line || [ -n "$line" ]; do
      case $line in *"$mark"*) mine=1; break;; *COOP_EXEC=*) any=1;; esac
    done <"$place/environ"
    if [ "$mine" ]; then
      found="$found$number "
      if [ -z "$first" ] || [ "${20}" -lt "$first" ]; then first=${20} root=$number group=$3; fi
    elif [ -z "$any" ] && [ "$2" = 1 ]; then
      lost="$lost $number:${20}"
    fi
  done
  if [ "$strays" ] && [ "$first" ] && [ "$first" -gt 0 ]; then
    for entry in $lost; do
      if [ "${entry#*:}" -ge "$first" ]; then found="$found${entry%%:*} "; fi
    done
  fi
  grown=1
  while [ "$grown" ]; do
    grown=
    for entry in $table; do
      number=${entry%%:*} rest=${entry#*:}
      case $found in *" $number "*) continue;; esac
      case $found in *" ${rest%%:*} "*) found="$found$number " grown=1;; esac
    done
  done
}
count() { counted=$#; }
"""

# Sends a signal to all of a command, and wakes what is stopped; prints how many there are.
_ASKING = """
look; count $found
for number in $found; do kill -"$2" "$number"; kill -CONT "$number"; done
echo "$counted"
"""

# Stops all of a command, so that nothing more is started, and then kills it; fails if that has no end.
_KILLING = """
all=
for pass in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  look; new=
  for number in $found; do
    case " $all " in *" $number "*) continue;; esac
    kill -STOP "$number"; all="$all $number" new=1
  done
  if [ -z "$new" ]; then
    for number in $all; do kill -KILL "$number"; done
    for pass in 1 2 3 4 5 6 7 8 9 10; do
      look; count $found
      if [ "$counted" = 0 ]; then exit 0; fi
      for number in $found; do kill -KILL "$number"; done
    done
    exit 1
  fi
done
for number in $all; do kill -KILL "$number"; done
exit 1
"""

# Sends a signal to the process group of a command's first process; prints how many got it.
_SIGNALLING = """
look; count
if [ "$first" ]; then
  for entry in $table; do
    number=${entry%%:*} rest=${entry#*:}; rest=${rest#*:}
    case $found in *" $number "*) ;; *) continue;; esac
    if [ "${rest%%:*}" = "$group" ] && kill -"$2" "$number"; then counted=$((counted + 1)); fi
  done
fi
echo "$counted"
"""

# Prints how many processes there are, but those named, and their memory in kB.
_COUNTING = """
processes=0 memory=0 own=" $* $$ "
for place in /proc/[0-9]*; do
  number=${place#/proc/}
  case $own in *" $number "*) continue;; esac
  state= size=
  while read -r key value rest; do
    case $key in State:) state=$value;; VmRSS:) size=$value;; esac
  done <"$place/status"
  case $state in ''|Z*|X*) continue;; esac
  while read -r key value rest; do
    case $key in Pss:) size=$value; break;; esac
  done <"$place/smaps_rollup"
  processes=$((processes + 1)) memory=$((memory + ${size:-0}))
done
echo "$processes $memory"
"""


# Prints why a directory cannot be entered, in the words of strerror(3); nothing if it can.
_ENTERABLE = """
if cd -- "$1"; then exit 0
elif [ -d "$1" ]; then echo Permission denied
elif [ -e "$1" ] || [ -h "$1" ]; then echo Not a directory
else echo No such file or directory
fi
"""

# Prints type and size of each path, its permissions, and, but for directories, when it was changed: a line
# each, and nothing for what is not known.
_DESCRIBING = """
for path do
  type= size= stamp=$(stat -c '%s %a %z' -- "$path")
  if [ -h "$path" ]; then type=link
  elif [ -f "$path" ]; then type=file size=${stamp%% *}
    if [ -z "$size" ]; then size=$(wc -c <"$path"); fi
  elif [ -d "$path" ]; then type=directory
  elif [ -p "$path" ]; then type=pipe
  elif [ -S "$path" ]; then type=socket
  elif [ -e "$path" ]; then type=device
  fi
  stamp=${stamp#* }
  if [ "$type" = directory ]; then stamp=${stamp%% *}; fi
  echo "$type $size $stamp"
done
"""


def waiting(ready: str) -> tuple[str, ...]:
    """Return the command of a container that waits for others.

    When it takes them it prints ``ready``, the pids of its two processes, and when it began.
    """
    return (SHELL, "-c", _BEGAN + _WAITING, "coop", ready)


def since() -> tuple[str, ...]:
    """Return the command that prints when the container began."""
    return (SHELL, "-c", f'{_BEGAN}began; echo "$began"')


def entering(
    began: str, directory: str, argv: tuple[str, ...], size: tuple[int, int] | None = None
) -> tuple[str, ...]:
    """Return the command that runs another one in a directory, and ends as a shell's would if it cannot.

    ``began`` is what the container printed of its own beginning; in another one nothing is started.
    ``size`` is (rows, columns) of its terminal, if it has one. It ends with ``BARRED`` if the directory
    cannot be entered.
    """
    rows, columns = ("", "") if size is None else map(str, size)
    return (SHELL, "-c", _BEGAN + _ENTERING, "coop", began, rows, columns, directory, *argv)


def asking(token: str, number: int, *, strays: bool) -> tuple[str, ...]:
    """Return the command that sends a signal to all processes of a command, and prints how many they are.

    ``strays`` says that what belongs to no command by any sign, and came after it, is of this one.
    """
    return _looking(_ASKING, token, strays, _digits(number))


def killing(token: str, *, strays: bool) -> tuple[str, ...]:
    """Return the command that kills all processes of a command, and fails if some are left."""
    return _looking(_KILLING, token, strays)


def signalling(token: str, number: int) -> tuple[str, ...]:
    """Return the command that sends a signal to a command's process group, and prints how many got it."""
    return _looking(_SIGNALLING, token, False, _digits(number))


def counting(own: tuple[int, ...]) -> tuple[str, ...]:
    """Return the command that prints the number of processes, but of ``own`` and itself, and their kB."""
    return (SHELL, "-c", _quiet(_COUNTING), "coop", *map(str, own))


def entering_fails(directory: str) -> tuple[str, ...]:
    """Return the command that prints why nothing can start in a directory, and nothing if something can."""
    return (SHELL, "-c", _quiet(_ENTERABLE), "coop", directory)


def describing(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the command that prints type, size and stamp of each path, a line each."""
    return (SHELL, "-c", _quiet(_DESCRIBING), "coop", *paths)


def told_number(text: str) -> int | None:
    """Return a number that a container tells; None if it is none: commands can have it say anything."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST else None


def _digits(number: int) -> str:
    """Return a signal as ``kill`` takes it: before Python 3.11 its enum is a name as text."""
    return str(int(number))


def _looking(text: str, token: str, strays: bool, *arguments: str) -> tuple[str, ...]:
    start = f"mark={TOKEN}=$1 strays={'1' if strays else ''}\n{_LOOKING}"
    return (SHELL, "-c", _quiet(start + text), "coop", token, *arguments)


def _quiet(text: str) -> str:
    """Return a text that says nothing of the processes that end while it looks at them."""
    return f"exec 2>/dev/null\n{text}"
