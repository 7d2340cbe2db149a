"""On a terminal a command has one of its own, as good as the caller's, which it cannot reach."""

from __future__ import annotations

import hashlib
import os
import random
import shlex
import shutil
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandboxes import DEADLINE, Actor, Project, alive, descendants, one_second, wait_gone, wait_until
from tests.terminals import Terminal, is_foreground, wait_for_program

pytestmark = pytest.mark.native

PROMPT = rb"@@ $"
# Takes the terminal as a full-screen program does, and never gives it back.
DRAWING = r"""
stty raw -echo
printf '\033[?1049h\033[?25l\033[?1002;1006h\033[?2004h\033=ready'
exec sleep 1000
"""
UNDONE = {b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1002l", b"\x1b[?1006l", b"\x1b[?2004l", b"\x1b>"}


@pytest.fixture
def terminal(actor: Actor) -> Iterator[Terminal]:
    """Yield a terminal of the actor's."""
    made = Terminal(actor)
    yield made
    made.close()


def bash(terminal: Terminal, project: Project) -> subprocess.Popen[bytes]:
    """Start an interactive shell in the sandbox."""
    process = terminal.coop(project, "bash", "--norc")
    terminal.screen.expect(rb"[#$] $")
    run(terminal, "bind 'set enable-bracketed-paste off'; PS1='@''@ '")
    return process


def run(terminal: Terminal, command: str) -> str:
    """Give the shell a command; return what it printed."""
    terminal.screen.send(command.encode() + b"\n")
    terminal.screen.expect(PROMPT)
    seen: bytes = terminal.screen.before
    return seen.decode().partition("\r\n")[2].replace("\r\n", "\n").strip()


def require(program: str) -> str:
    """Return a program's path; skips the test where it is absent."""
    path = shutil.which(program, path="/usr/bin:/bin")
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


# --- whose it is


def test_it_is_the_sandboxes_own(project: Project, terminal: Terminal) -> None:
    """Streams and /dev/tty are a terminal of the sandbox; its settings and its mode are not the caller's."""
    terminal.resize(31, 97)
    before = terminal.state()
    script = (
        "tty; readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2; echo opened > /dev/tty; "
        "stty size < /dev/tty; chmod 666 /dev/stdin; stat -Lc %a /dev/stdin; stty intr ^A erase ^B; "
        "echo ready; read answer; echo \"got $answer\"; exit 3"
    )  # fmt: skip
    process = terminal.coop(project, "sh", "-c", script)
    terminal.screen.expect_exact(b"ready")
    own = b"/dev/pts/0\r\n"
    assert terminal.screen.before == own * 4 + b"opened\r\n31 97\r\n666\r\n"
    during = terminal.state()
    assert terminal.is_raw() and during[1] == before[1]
    assert during[0][6][termios.VINTR] == b"\x03"
    terminal.screen.send(b"word\r")
    terminal.screen.expect_exact(b"got word")
    terminal.rest(process)
    assert process.returncode == 3
    assert terminal.state() == before


def test_it_begins_like_the_callers(project: Project, terminal: Terminal) -> None:
    """Keys and flow control that the caller has set are those of the command's terminal."""
    attributes = termios.tcgetattr(terminal.device)
    attributes[0] &= ~termios.IXON
    attributes[6][termios.VERASE] = b"\x08"
    termios.tcsetattr(terminal.device, termios.TCSANOW, attributes)
    process = terminal.coop(project, "stty", "-a")
    seen = terminal.rest(process)
    assert b"erase = ^H;" in seen and b"-ixon" in seen, seen


def test_first_process_has_no_stream_of_the_callers(project: Project, terminal: Terminal) -> None:
    """PID 1 does not hold the caller's terminal either, which the command might find there."""
    process = terminal.coop(project, "sleep", "1000")
    pid = wait_for_program(process, "sleep")
    first = descendants(process.pid)[1]
    for number in (0, 1, 2):
        assert os.stat(f"/proc/{first}/fd/{number}").st_rdev == os.makedev(1, 3)
        assert os.stat(f"/proc/{pid}/fd/{number}").st_dev != os.fstat(terminal.device).st_dev


@pytest.mark.parametrize("redirection", ["</dev/null", ">/dev/null"])
def test_not_for_half_a_terminal(project: Project, terminal: Terminal, redirection: str) -> None:
    """With input or output redirected, the other is the caller's own, whose settings come back."""
    before = terminal.state()
    script = "stty -echo <&2; test -t 0 || echo '<' >&2; test -t 1 || echo '>' >&2"
    argv = ["sh", "-c", f'exec "$@" {redirection}', "sh", *project.argv(["sh", "-c", script], ["-q"])]
    process = terminal.start(argv, project.environment, project.actor.base)
    assert terminal.rest(process) == redirection[:1].encode() + b"\r\n"
    assert terminal.state() == before


def test_errors_elsewhere(project: Project, terminal: Terminal) -> None:
    """Errors that the caller has redirected stay so."""
    process = terminal.coop(
        project, "sh", "-c", "echo out; echo err >&2; test -t 2 || echo file", stderr=subprocess.PIPE
    )
    assert terminal.rest(process) == b"out\r\nfile\r\n"
    assert process.communicate(timeout=DEADLINE)[1] == b"err\n"


def test_another_users_terminal(actor: Actor, project: Project) -> None:
    """A terminal that belongs to somebody else, as after su, serves as well and blocks again afterwards."""
    terminal = Terminal(actor, foreign=True)
    try:
        before = terminal.state()
        process = terminal.coop(project, "sh", "-c", "echo ready; read answer; seq 20000; echo got $answer")
        terminal.screen.expect_exact(b"ready\r\n")
        terminal.screen.send(b"word\r")
        seen = terminal.rest(process)
        assert seen.startswith(b"word\r\n1\r\n2\r\n") and seen.endswith(b"\r\n20000\r\ngot word\r\n")
        assert terminal.state() == before
    finally:
        terminal.close()


# --- what it can do


def test_job_control(project: Project, terminal: Terminal) -> None:
    """Ctrl-Z, bg, fg and Ctrl-C act on the shell's jobs, Ctrl-D ends it."""
    process = bash(terminal, project)
    terminal.screen.send(b"sleep 1000\n")
    sleep = wait_for_program(process, "sleep")
    assert wait_until(lambda: is_foreground(sleep))
    terminal.screen.send(b"\x1a")
    terminal.screen.expect_exact(b"Stopped")
    terminal.screen.expect(PROMPT)
    assert "sleep 1000 &" in run(terminal, "bg")
    assert "Running" in run(terminal, "jobs")
    terminal.screen.send(b"fg\n")
    terminal.screen.expect_exact(b"sleep 1000\r\n")
    assert wait_until(lambda: is_foreground(sleep))
    terminal.screen.send(b"\x03")
    terminal.screen.expect(PROMPT)
    assert run(terminal, "echo $?") == "130"
    terminal.screen.send(b"exit 4\n")
    terminal.rest(process)
    assert process.returncode == 4


def test_completion_and_colours(project: Project, terminal: Terminal) -> None:
    """Tab completes names, the arrow brings the last command back, and ls has colours."""
    project.write("an-unusual-name.txt", "content")
    project.mkdir("directory")
    bash(terminal, project)
    assert run(terminal, "cat an-unus\t") == "content"
    assert run(terminal, "\x1b[A") == "content"
    assert "\x1b[01;34mdirectory\x1b[0m" in run(terminal, "ls --color=auto")


def test_size_is_followed(project: Project, terminal: Terminal) -> None:
    """A new size of the window is the command's at once, which is told by a signal."""
    script = "trap 'stty size; exit' WINCH; stty size; echo ready; while :; do sleep 0.1; done"
    process = terminal.coop(project, "sh", "-c", script)
    terminal.screen.expect_exact(b"24 80\r\nready\r\n")
    terminal.resize(50, 132)
    assert terminal.rest(process) == b"50 132\r\n"


def lines(size: int) -> bytes:
    """Return text of that many bytes."""
    chance = random.Random(1)
    text = b"".join(b"%064x\n" % chance.getrandbits(256) for _ in range(size // 65 + 1))
    return text[: size - 1] + b"\n"


def test_paste_of_lines(project: Project, terminal: Terminal) -> None:
    """A paste of 100 kB arrives whole at what reads lines."""
    data = lines(100_000)
    script = f"stty -echo; echo ready; head -c {len(data)} | sha256sum"
    process = terminal.coop(project, "sh", "-c", script)
    terminal.screen.expect_exact(b"ready\r\n")
    terminal.paste(data)
    assert terminal.rest(process).split()[0] == hashlib.sha256(data).hexdigest().encode()


def test_paste_of_keys(project: Project, terminal: Terminal) -> None:
    """100 kB of any bytes, those that mean something to a terminal included, arrive whole in raw mode."""
    data = random.Random(2).randbytes(100_000)
    script = f"stty raw -echo; echo ready; head -c {len(data)} | sha256sum"
    process = terminal.coop(project, "sh", "-c", script)
    terminal.screen.expect_exact(b"ready\n")
    terminal.paste(data)
    assert terminal.rest(process).split()[0] == hashlib.sha256(data).hexdigest().encode()


def test_paste_that_is_echoed_and_repeated(project: Project, terminal: Terminal) -> None:
    """Floods in both directions at once neither lose anything nor wait for each other."""
    data = lines(300_000)
    script = f"stty -echo; echo ready; head -c {len(data)}"
    process = terminal.coop(project, "sh", "-c", script)
    terminal.screen.expect_exact(b"ready\r\n")
    terminal.paste(data)
    assert terminal.rest(process) == data.replace(b"\n", b"\r\n")


def test_flood_of_output(project: Project, terminal: Terminal) -> None:
    """Not a byte is missing of what a command prints and then ends at once."""
    process = terminal.coop(project, "seq", "150000")
    assert terminal.rest(process) == b"".join(b"%d\r\n" % number for number in range(1, 150001))
    for _ in range(5):
        process = terminal.coop(project, "seq", "999")
        assert terminal.rest(process).endswith(b"\r\n998\r\n999\r\n")


def test_interrupted_flood(project: Project, terminal: Terminal) -> None:
    """Ctrl-C gets through to a command that prints without end."""
    process = terminal.coop(project, "yes")
    terminal.screen.expect_exact(b"y\r\ny\r\n")
    terminal.screen.send(b"\x03")
    terminal.rest(process)
    assert process.returncode == 128 + signal.SIGINT


# --- real programs


def test_vim(project: Project, terminal: Terminal) -> None:
    """vim draws on the alternate screen, edits a file, and leaves the screen again."""
    require("vim")
    before = terminal.state()
    process = terminal.coop(project, "vim", "-u", "NONE", "-N", "text")
    terminal.screen.expect_exact(b"\x1b[?1049h")
    terminal.screen.expect_exact(b"[New]")
    terminal.screen.send(b"ihello, world\x1b")
    terminal.screen.expect_exact(b"hello, world")
    terminal.resize(40, 100)
    terminal.screen.expect_exact(b"\x1b[40;1H")  # the last line, where vim shows what is typed
    terminal.screen.send(b":wq\r")
    assert b"\x1b[?1049l" in terminal.rest(process)
    assert (project.directory / "text").read_text() == "hello, world\n"
    assert (process.returncode, terminal.state()) == (0, before)


def test_less(project: Project, terminal: Terminal) -> None:
    """less shows pages, searches, and ends."""
    require("less")
    project.write("text", "".join(f"line {number}\n" for number in range(1, 501)))
    process = terminal.coop(project, "less", "text")
    terminal.screen.expect_exact(b"line 23\r\n")
    terminal.screen.send(b"G")
    terminal.screen.expect_exact(b"line 500")
    terminal.screen.send(b"?line 100\r")
    terminal.screen.expect_exact(b"line 100")
    terminal.screen.send(b"q")
    terminal.rest(process)
    assert process.returncode == 0


def test_python(project: Project, terminal: Terminal) -> None:
    """A Python prompt evaluates, is interrupted by Ctrl-C, and ends by Ctrl-D."""
    process = terminal.coop(project, "/usr/bin/python3", "-I", "-q")
    terminal.screen.expect_exact(b">>> ")
    terminal.screen.send(b"print(6 * 7, __import__('os').isatty(0))\r")
    terminal.screen.expect_exact(b"42 True")
    terminal.screen.send(b"import time; print('be' 'gun'); time.sleep(1000)\r")
    terminal.screen.expect_exact(b"begun")
    terminal.screen.send(b"\x03")
    terminal.screen.expect_exact(b"KeyboardInterrupt")
    terminal.screen.expect_exact(b">>> ")
    terminal.screen.send(b"'a' 'fterwards'\r")
    terminal.screen.expect_exact(b"afterwards")
    terminal.screen.expect_exact(b">>> ")
    terminal.screen.send(b"\x04")
    terminal.rest(process)
    assert process.returncode == 0


def test_htop(project: Project, terminal: Terminal) -> None:
    """htop draws itself, in colours, and ends."""
    require("htop")
    process = terminal.coop(project, "htop")
    terminal.screen.expect_exact(b"Load average")
    terminal.screen.send(b"q")
    assert b"\x1b[?1049l" in terminal.rest(process)
    assert process.returncode == 0


# --- ways out


@pytest.mark.parametrize(("who", "status"), [("command", 137), ("PID 1", 137), ("monitor", 125)])
def test_killed(project: Project, terminal: Terminal, who: str, status: int) -> None:
    """Whichever process is killed, the terminal is as before, and so is what is drawn on."""
    before = terminal.state()
    process = terminal.coop(project, "sh", "-c", DRAWING)
    terminal.screen.expect_exact(b"ready")
    family = descendants(process.pid)
    os.kill(family[("monitor", "PID 1", "command").index(who)], signal.SIGKILL)
    seen = terminal.rest(process)
    assert process.returncode == status
    assert terminal.state() == before
    assert all(undo in seen for undo in UNDONE), seen
    assert wait_gone(family), alive(family)


def test_coop_killed(project: Project, terminal: Terminal) -> None:
    """Even when coop itself is killed, its monitor gives the terminal back."""
    before = terminal.state()
    process = terminal.coop(project, "sh", "-c", DRAWING)
    terminal.screen.expect_exact(b"ready")
    family = descendants(process.pid)
    process.kill()
    assert wait_gone(family), alive(family)
    assert terminal.state()[:2] == before[:2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
def test_signals_to_coop(project: Project, terminal: Terminal, number: signal.Signals) -> None:
    """A signal that is sent to coop ends the command, and the terminal is as before."""
    before = terminal.state()
    process = terminal.coop(project, "sh", "-c", DRAWING)
    terminal.screen.expect_exact(b"ready")
    wait_for_program(process, "sleep")
    process.send_signal(number)
    terminal.rest(process)
    assert (process.returncode, terminal.state()) == (128 + number, before)


def test_time_is_over(project: Project, terminal: Terminal) -> None:
    """--timeout holds on a terminal as elsewhere."""
    before = terminal.state()
    process = terminal.coop(project, "sleep", "1000", options=["--timeout", "500ms"])
    assert b"ended after 0.5 s" in terminal.rest(process)
    assert (process.returncode, terminal.state()) == (124, before)


@pytest.mark.parametrize("by", ["signal", "time"])
def test_stopped_terminal(project: Project, terminal: Terminal, by: str) -> None:
    """A terminal that shows nothing any more does not keep a command from being ended."""
    before = terminal.state()
    options = one_second(project) if by == "time" else ()
    process = terminal.coop(project, "yes", options=options, stderr=subprocess.DEVNULL)
    terminal.screen.expect_exact(b"y\r\ny\r\n")
    if by == "signal":
        process.terminate()
    assert process.wait(DEADLINE) == (124 if by == "time" else 128 + signal.SIGTERM)
    assert terminal.state() == before


@pytest.mark.parametrize("argv", [("no-such-program",), ("sh", "-c", "exit 7"), ("true",)])
def test_quick_ends(project: Project, terminal: Terminal, argv: tuple[str, ...]) -> None:
    """A command that ends at once, or does not even start, leaves the terminal as it was."""
    before = terminal.state()
    process = terminal.coop(project, *argv)
    seen = terminal.rest(process)
    assert process.returncode == {"no-such-program": 127, "sh": 7, "true": 0}[argv[0]]
    assert (b"no-such-program: not found" in seen) is (argv[0] == "no-such-program")
    assert terminal.state() == before


def test_what_runs_on_does_not_hold_coop(project: Project, terminal: Terminal) -> None:
    """A process that keeps the terminal open and prints on does not keep coop from ending."""
    process = terminal.coop(project, "sh", "-c", "trap '' HUP; yes & echo done; exit 6")
    assert b"done" in terminal.rest(process)
    assert process.returncode == 6


def test_hung_up(project: Project, terminal: Terminal) -> None:
    """When the caller's window is closed, the command is told and has no terminal any more."""
    script = "trap 'echo told > told' HUP; echo ready; cat; echo end > end; exit 5"
    process = terminal.coop(project, "sh", "-c", script)
    terminal.screen.expect_exact(b"ready")
    wait_for_program(process, "cat")
    terminal.hang_up()
    assert process.wait(DEADLINE) == 5
    assert (project.directory / "told").exists() and (project.directory / "end").exists()


def test_hung_up_in_vain(project: Project, terminal: Terminal) -> None:
    """A command that ignores the hang-up goes on, as it would without coop."""
    script = "trap '' HUP; echo ready; cat; sleep 0.2; echo lost; echo end > end"
    process = terminal.coop(project, "sh", "-c", script)
    terminal.screen.expect_exact(b"ready")
    wait_for_program(process, "cat")
    terminal.hang_up()
    process.wait(DEADLINE)
    assert (project.directory / "end").read_text() == "end\n"


# --- coop as a job


def test_stopped_and_continued(project: Project, terminal: Terminal) -> None:
    """Stopped by force and continued, coop takes the terminal again, and follows its new size."""
    before = terminal.state()
    process = terminal.coop(project, "sh", "-c", "echo ready; read answer; stty size; echo got $answer")
    terminal.screen.expect_exact(b"ready")
    process.send_signal(signal.SIGSTOP)
    assert wait_until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0] == "T")
    termios.tcsetattr(terminal.device, termios.TCSANOW, before[0])
    terminal.resize(33, 111)
    process.send_signal(signal.SIGCONT)
    assert wait_until(terminal.is_raw)
    terminal.screen.send(b"word\r")
    terminal.screen.expect_exact(b"33 111\r\ngot word")
    terminal.rest(process)
    assert terminal.state() == before


def outer_shell(terminal: Terminal, project: Project) -> subprocess.Popen[bytes]:
    """Start an interactive shell outside."""
    process = terminal.start(
        [*project.actor.prefix, "bash", "--norc", "--noediting"], project.environment, project.actor.base
    )
    terminal.screen.expect(rb"[#$] $")
    run(terminal, "PS1='@''@ '; set -m")
    return process


def test_stopped_by_a_shell(project: Project, terminal: Terminal) -> None:
    """Asked to stop, coop leaves the terminal to the shell as it was; fg goes on."""
    shell = outer_shell(terminal, project)
    usual = terminal.state()[0]
    argv = project.argv(["sh", "-c", "echo rea''dy; read answer; echo got $answer"], ["-q"])
    terminal.screen.send(shlex.join(argv[len(project.actor.prefix) :]).encode() + b"\n")
    terminal.screen.expect_exact(b"ready\r\n")
    os.kill(descendants(shell.pid)[0], signal.SIGTSTP)
    terminal.screen.expect_exact(b"Stopped")
    terminal.screen.expect(PROMPT)
    assert terminal.state()[0] == usual
    terminal.screen.send(b"fg\n")
    assert wait_until(terminal.is_raw)
    terminal.screen.send(b"word\r")
    terminal.screen.expect_exact(b"got word")
    terminal.screen.expect(PROMPT)
    assert terminal.state()[0] == usual


def test_in_the_background(project: Project, terminal: Terminal) -> None:
    """Started in the background, coop shows what is printed and does not take the terminal before fg."""
    outer_shell(terminal, project)
    usual = terminal.state()[0]
    argv = project.argv(["sh", "-c", "echo rea''dy; read answer; echo got $answer"], ["-q"])
    terminal.screen.send(shlex.join(argv[len(project.actor.prefix) :]).encode() + b" &\n")
    terminal.screen.expect_exact(b"ready")
    assert run(terminal, "echo typed for the shell; jobs").count("Running") == 1
    assert terminal.state()[0] == usual
    terminal.screen.send(b"fg\n")
    assert wait_until(terminal.is_raw)
    terminal.screen.send(b"word\r")
    terminal.screen.expect_exact(b"got word")
    terminal.screen.expect(PROMPT)
    assert terminal.state()[0] == usual
