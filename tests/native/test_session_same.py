"""Commands in a session end as `subprocess.run(text, shell=True)` has them end, but for the sandbox."""

from __future__ import annotations

import shutil

import pytest

from tests.native.test_session_api import Program, program

__all__ = ["program"]

pytestmark = pytest.mark.native

# Runs each text twice, in a copy of the project and in a session on it, and prints what differs.
COMPARING = r"""
import shutil
DATE = "2020-01-01T00:00:00Z"
environment = {
    "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1",
    **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
       for what, value in (("NAME", "n"), ("EMAIL", "e"), ("DATE", DATE))},
}
with open("data", "w") as file:
    file.writelines(f"{number} {number * number % 97} word{number % 13}\n" for number in range(3000))
with open("bytes", "wb") as file:
    file.write(bytes(range(256)) * 300)
with open("Makefile", "w") as file:
    file.write("all: sum\nsum: data part\n\tcat data part | cksum > $@\n")
    file.write("part:\n\techo part > $@\nbad:\n\texit 3\n")
if shutil.which("git"):
    for line in ("init -q -b main .", "add -A", "commit -q -m first"):
        subprocess.run(["git", *line.split()], env=environment, check=True)
twin = os.path.realpath(".") + "-twin"
shutil.copytree(".", twin, symlinks=True)

def plainly(text, data, limit):
    process = subprocess.Popen(
        text, shell=True, cwd=twin, env=environment, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    try:
        out, err = process.communicate(data, timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return "late", out, err
    return process.returncode, out, err

def boxed(session, text, data, limit):
    result = session.shell(text, stdin=data, timeout=limit, environment=environment, output=1 << 26)
    status = "late" if result.timed_out else result.status if result.signal is None else -result.signal
    return status, result.stdout, result.stderr

def tree(top):
    found = {}
    for place, directories, files in os.walk(os.fsencode(top)):
        directories[:] = [name for name in directories if name != b".git"]
        for name in directories + files:
            path = os.path.join(place, name)
            status = os.lstat(path)
            content = b""
            if os.path.islink(path):
                content = os.readlink(path)
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    content = file.read()
            found[os.path.relpath(path, os.fsencode(top))] = (status.st_mode, status.st_uid, content)
    return found

texts, times, limit = eval(sys.argv[1])
data = b"some input\nmore \xff\n" * times
with coopfile.Session(plan) as session:
    session.exec(["true"])
    before = len(os.listdir("/proc/self/fd"))
    for text in texts:
        for _ in range(2):
            one, other = plainly(text, data, limit), boxed(session, text, data, limit)
            for what, here, there in zip(("status", "output", "errors"), one, other):
                if here != there:
                    print(repr(text), what, repr(here)[-300:], repr(there)[-300:])
    after = len(os.listdir("/proc/self/fd"))
    if before != after or not ends(session, "sleep"):
        print("left", before, after)
one, other = tree(twin), tree(".")
for path in sorted(set(one) | set(other)):
    if one.get(path) != other.get(path):
        print("file", path, repr(one.get(path))[-300:], repr(other.get(path))[-300:])
"""

KINDS: dict[str, tuple[str, ...]] = {
    "builds": (
        "make; cat sum",
        "echo more >> data; make -s; make",
        "make bad",
        "make nosuch",
        "make -n bad; rm part; make -j4 2>&1 | sort",
    ),
    "git": (
        "git status --short; git log --format=%H",
        "echo line >> data; git add -A; git commit -qm more; git rev-parse HEAD; git log -p -1",
        "git checkout -q -B other; echo x > x; git add x; git commit -qm x; git checkout -q main",
        "git merge --no-edit other; git log --graph --oneline",
        "echo lost >> data; git stash -q; git diff --stat; git stash pop -q; git diff; git fsck",
        "git nosuch",
    ),
    "pipes": (
        "sort -k2n data | cut -d' ' -f3 | uniq -c | sort -rn | head -4",
        "yes | head -3; false | true; echo $?",
        "seq 30000 | awk '{s += $1} END {print s}'",
        "mkfifo p; (echo through > p &); cat p; rm p",
        'for i in 1 2 3; do echo "$(echo $i | tr 123 abc)"; done <<END\nx\nEND',
    ),
    "outputs": (
        "seq 300000",
        "seq 100000 >&2; seq 100000",
        "head -c 3000000 /dev/zero",
        "cat bytes; cat bytes >&2",
        r"printf '\377\376\303(\0end'; printf '\200' >&2",
        r"echo x > $(printf 'n\351'); ls n* | od -c; echo $(printf '\377') | od -c",
        "printf 'no newline'",
        "exec >&-; echo x; echo y >&2",
        "exec 2>&1; echo both; ls nosuch",
    ),
    "background": (
        "(sleep 0.05; echo late > late) >/dev/null 2>&1 & echo now; wait",
        "for i in 1 2 3; do (echo $i > w$i) & done; wait; cat w1 w2 w3",
        "sleep 100 >/dev/null 2>&1 & kill -9 $!; wait $! 2>/dev/null; echo $?",
        "mkfifo q; (trap 'echo told; kill $s; exit' TERM; sleep 100 & s=$!; echo > q; wait) >o 2>&1 & "
        "read a <q; kill $!; wait; cat o; rm q",
    ),
    "ends": (
        *(
            "exit 0",
            "exit 3",
            "exit 255",
            "exit 300",
            "",
            ":",
            "false",
            "nosuchcommand --x",
            "./data",
            "/",
            "if",
        ),
        *(
            "kill -TERM $$",
            "kill -9 $$",
            "kill -SEGV $$",
            "kill -PIPE $$",
            "kill -INT $$",
            "sh -c 'kill -9 $$'",
        ),
        "trap 'echo caught; exit 9' TERM; kill $$; sleep 1",
        'python3 -c \'import sys; sys.stdout.write("a"); sys.exit("bye")\'',
        "python3 -c 'import os; os.abort()'; echo $?",
    ),
    "files": (
        "umask; touch a; stat -c %a a; mkdir -p d/e; chmod 700 d; mv d f; ls -R f; rm -r f",
        "ln -sf data l; readlink l; ln -f data h; stat -c '%h %s' data; rm h",
        "cp -a data copy; cmp data copy; truncate -s 5 copy; cat copy; rm copy; cat copy",
        "tar cf - --sort=name --mtime=@0 --owner=0 --group=0 data bytes | cksum",
        "dd if=data of=o bs=100 count=3 2>/dev/null; cat o; find . -name o -newer data | wc -l",
        "flock l echo locked; stat -c %U:%G data >/dev/null; chmod 640 data; stat -c %a data",
    ),
    "surroundings": (
        "env | grep -e ^GIT -e ^LANG -e ^HOME -e ^PYTHON | sort",
        "echo $# $0 $- ${NOSUCH-unset}; cd .. 2>/dev/null; cd /; pwd",
        "id -u | grep -c .; ulimit -c >/dev/null; test -t 0; echo $?; test -t 1; echo $?; nproc",
        "ps -o tty= -p $$ 2>/dev/null | tr -d ' '; echo x > /dev/tty",
        "ls /proc/self/fd | wc -l; trap; date -u -d @0",
    ),
    "input": (
        "cat",
        "read a; echo got $a; wc -c",
        "true",
        "head -c 5; echo; tail -c 3",
        "cat /dev/fd/0 | cksum",
    ),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_difference(program: Program, kind: str) -> None:
    """The same output, errors, status and files, as often as it is done; and nothing stays behind."""
    if kind in ("git", "builds") and shutil.which({"builds": "make"}.get(kind, kind)) is None:
        pytest.skip(f"no {kind} without its program")
    asked = repr((KINDS[kind], 5000 if kind == "input" else 0, 60.0))
    assert program(f"sys.argv[1:] = [{asked!r}]\n{COMPARING}").out == ""


def test_no_difference_in_time(program: Program) -> None:
    """What takes too long is ended on both sides, with what it had printed until then."""
    texts = (
        "echo before; sleep 100",
        "trap '' TERM; echo deaf; sleep 100; sleep 100",
        "sleep 100 & echo both; wait",
    )
    asked = repr((texts, 0, 1.0))
    assert program(f"sys.argv[1:] = [{asked!r}]\n{COMPARING}").out == ""
