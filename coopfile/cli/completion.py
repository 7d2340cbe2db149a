"""``coop completion``: scripts for bash, zsh and fish, generated from the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from coopfile.cli import output
from coopfile.record import Record

SUMMARY = "print a completion script for bash, zsh or fish"
EPILOG = """examples:
  eval "$(coop completion bash)"                                  in ~/.bashrc
  coop completion zsh > ~/.zfunc/_coop                            with ~/.zfunc in $fpath
  coop completion fish > ~/.config/fish/completions/coop.fish
"""


_SESSIONS = "coop ls -q 2>/dev/null"
_BASH_SESSIONS = f'mapfile -t COMPREPLY < <(compgen -W "$({_SESSIONS})" -- "$cur")'
_ZSH_SESSIONS = f'{{compadd -- ${{(f)"$({_SESSIONS})"}}}}'


class Option(Record):
    """One option as shells complete it.

    ``value`` is what follows it: None, ``word`` (nothing to offer), ``file``, ``directory`` or
    ``session``; ``choices`` are its possible values where those are few.
    """

    flags: tuple[str, ...]
    help: str
    value: str | None
    choices: tuple[str, ...]


class Verb(Record):
    """One verb: its options, the words its positional arguments may be, and what else they are.

    ``rest`` is None, ``file``, or ``command`` for a verb that runs one; with ``sessions`` names of
    sessions come first, or are all that comes.
    """

    name: str
    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...]
    rest: str | None
    sessions: bool = False


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to print a script for")


def main(options: argparse.Namespace) -> int:
    """Print the script for one shell."""
    from coopfile.cli.parsing import parser as whole

    writers: dict[str, Callable[[tuple[Option, ...], tuple[Verb, ...]], str]] = {
        "bash": bash,
        "zsh": zsh,
        "fish": fish,
    }
    output.emit(writers[options.shell](*describe(whole())))
    return 0


def describe(parser: argparse.ArgumentParser) -> tuple[tuple[Option, ...], tuple[Verb, ...]]:
    """Take a parser apart: its own options, and its verbs."""
    verbs = []
    # argparse has no public way to walk a parser; argcomplete and shtab read these too.
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            verbs = [_verb(name, helps.get(name, ""), verb) for name, verb in action.choices.items()]
    return _options(parser), tuple(verbs)


def _verb(name: str, help: str, parser: argparse.ArgumentParser) -> Verb:
    words: list[str] = []
    rest, sessions = None, False
    for action in parser._actions:
        if action.option_strings:
            continue
        if action.choices is not None:
            words += map(str, action.choices)
        elif action.nargs == argparse.REMAINDER or str(action.metavar).upper().startswith(("CMD", "COMMAND")):
            rest = "command"
        elif _value(action) == "file":
            rest = rest or "file"
        elif _value(action) == "session":
            sessions = True
    return Verb(name, help, _options(parser), tuple(words), rest, sessions)


def _options(parser: argparse.ArgumentParser) -> tuple[Option, ...]:
    return tuple(
        Option(
            tuple(action.option_strings),
            (action.help or "") % {**vars(action), "prog": parser.prog} if action.help else "",
            None if action.nargs == 0 else _value(action),
            tuple(map(str, action.choices or ())),
        )
        for action in parser._actions
        if action.option_strings and action.help is not argparse.SUPPRESS
    )


def _value(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest).upper()
    kinds = {"DIR": "directory", "DIRECTORY": "directory", "FILE": "file", "OTHER": "file", "NAME": "session"}
    return kinds.get(name, "word")


def _flags(options: Iterable[Option]) -> str:
    return " ".join(flag for option in options for flag in option.flags)


def bash(common: tuple[Option, ...], verbs: tuple[Verb, ...]) -> str:
    """Return a script for bash 4 or newer; it does not need the bash-completion package."""
    # What to offer after an option, and the options that it is offered after.
    values: dict[str, list[str]] = {}
    for option in (option for options in (common, *(verb.options for verb in verbs)) for option in options):
        if option.value is not None:
            flags = values.setdefault(_bash_values(option), [])
            flags += [flag for flag in option.flags if flag not in flags]
    # Those whose command comes after a session's name.
    named = [verb.name for verb in verbs if verb.sessions and verb.rest == "command"]
    valued = sorted({flag for flags in values.values() for flag in flags})
    lines = [
        "# bash completion for coop; made by `coop completion bash`",
        "_coop() {",
        "    local cur prev verb='' session='' word i start=0 flags='' words='' rest=''",
        "    COMPREPLY=()",
        "    cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}",
        "    # `=` is a word of its own here.",
        "    if [[ $cur == = ]]; then cur=''; fi",
        "    if [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi",
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        "        word=${COMP_WORDS[i]}",
        "        case $word in",
        f"        {'|'.join(valued)}) ((i++)); if [[ ${{COMP_WORDS[i]}} == = ]]; then ((i++)); fi ;;",
        "        --) start=$((i + 1)); break ;;",
        "        -*) ;;",
        "        *) if [[ -z $verb ]]; then verb=$word",
        f"           elif [[ -z $session && $verb == @({'|'.join(named) or '-'}) ]]; then session=$word",
        "           else start=$i; break; fi ;;",
        "        esac",
        "    done",
        "    case $verb in",
        f"    '') flags='{_flags(common)}' words='{' '.join(verb.name for verb in verbs)}' ;;",
    ]
    for verb in verbs:
        words = f" words='{' '.join(verb.words)}'" if verb.words else ""
        rest = f" rest={verb.rest}" if verb.rest else ""
        rest = " rest=session" if verb.sessions and not verb.rest else rest
        lines.append(f"    {verb.name}) flags='{_flags(verb.options)}'{words}{rest} ;;")
    lines += [
        "    esac",
        f"    if [[ -z $session && $verb == @({'|'.join(named) or '-'}) ]]; then rest=session; fi",
        "    if [[ $rest == command && $start -gt 0 ]]; then",
        '        if ((COMP_CWORD == start)); then mapfile -t COMPREPLY < <(compgen -c -- "$cur")',
        '        else mapfile -t COMPREPLY < <(compgen -f -- "$cur"); fi',
        "        return",
        "    fi",
        "    case $prev in",
        *(f"    {'|'.join(flags)}) {action}; return ;;" for action, flags in values.items()),
        "    esac",
        '    if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "$flags" -- "$cur"))',
        '    elif [[ $rest == file ]]; then mapfile -t COMPREPLY < <(compgen -f -- "$cur")',
        '    elif [[ $rest == command ]]; then mapfile -t COMPREPLY < <(compgen -c -- "$cur")',
        f"    elif [[ $rest == session ]]; then {_BASH_SESSIONS}",
        '    else COMPREPLY=($(compgen -W "$words" -- "$cur")); fi',
        "}",
        "complete -o filenames -F _coop coop",
    ]
    return "\n".join(lines)


def _bash_values(option: Option) -> str:
    if option.choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$cur"))'
    if option.value == "session":
        return _BASH_SESSIONS
    kind = {"file": "-f", "directory": "-d"}.get(option.value or "")
    return f'mapfile -t COMPREPLY < <(compgen {kind} -- "$cur")' if kind else ":"


def zsh(common: tuple[Option, ...], verbs: tuple[Verb, ...]) -> str:
    """Return a script for zsh, to be a file ``_coop`` in ``$fpath``."""
    lines = ["#compdef coop", "_coop() {", "  local context state line", "  typeset -A opt_args"]
    lines.append("  _arguments -C \\")
    lines += [f"    {spec} \\" for option in common for spec in _zsh_option(option)]
    lines += ["    '1:verb:->verb' '*::argument:->argument'", "  case $state in", "  verb)"]
    described = " ".join(_zsh_quote(f"{verb.name}:{verb.help}") for verb in verbs)
    lines += [f"    local -a verbs=({described})", "    _describe verb verbs ;;", "  argument)"]
    lines.append("    case $line[1] in")
    for verb in verbs:
        specs = [spec for option in verb.options for spec in _zsh_option(option)]
        if verb.words:
            specs.append(f"'1:word:({' '.join(verb.words)})'")
        if verb.sessions:
            specs.append(f"'{'1' if verb.rest else '*'}:session:{_ZSH_SESSIONS}'")
        if verb.rest == "command":
            specs.append("'*::command:_normal'")
        elif verb.rest == "file":
            specs.append("'*:file:_files'")
        lines += [f"    {verb.name}) _arguments {' '.join(specs)} ;;"]
    lines += ["    esac ;;", "  esac", "}", '_coop "$@"']
    return "\n".join(lines)


def _zsh_option(option: Option) -> list[str]:
    help = option.help.replace("[", "(").replace("]", ")").replace(":", ",")
    value = ""
    if option.choices:
        value = f":value:({' '.join(option.choices)})"
    elif option.value is not None:
        kinds = {"file": ":file:_files", "directory": ":directory:_files -/"}
        kinds["session"] = f":session:{_ZSH_SESSIONS}"
        value = kinds.get(option.value, ":value:")
    return [
        _zsh_quote(f"{flag}{'=' if value and flag.startswith('--') else ''}[{help}]{value}")
        for flag in option.flags
    ]


def _zsh_quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def fish(common: tuple[Option, ...], verbs: tuple[Verb, ...]) -> str:
    """Return a script for fish 3 or newer."""
    lines = ["# fish completion for coop; made by `coop completion fish`", "complete -c coop -f"]
    names = " ".join(verb.name for verb in verbs)
    before = f"not __fish_seen_subcommand_from {names}"
    lines += [
        f"complete -c coop -n {_fish_quote(before)} -a {verb.name} -d {_fish_quote(verb.help)}"
        for verb in verbs
    ]
    lines += [_fish_option(before, option) for option in common]
    for verb in verbs:
        seen = f"__fish_seen_subcommand_from {verb.name}"
        lines += [_fish_option(seen, option) for option in verb.options]
        if verb.words:
            lines.append(f"complete -c coop -n {_fish_quote(seen)} -a {_fish_quote(' '.join(verb.words))}")
        if verb.sessions:
            lines.append(f"complete -c coop -n {_fish_quote(seen)} -a '({_SESSIONS})'")
        if verb.rest == "command":
            lines.append(
                f"complete -c coop -n {_fish_quote(seen)} -a '(__fish_complete_subcommand --fcs-skip=3)'"
            )
        elif verb.rest == "file":
            lines.append(f"complete -c coop -n {_fish_quote(seen)} -F")
    return "\n".join(lines)


def _fish_option(condition: str, option: Option) -> str:
    parts = [f"complete -c coop -n {_fish_quote(condition)}"]
    for flag in option.flags:
        parts.append(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}")
    parts.append(f"-d {_fish_quote(option.help)}")
    if option.choices:
        parts.append(f"-xa {_fish_quote(' '.join(option.choices))}")
    elif option.value in ("file", "directory"):
        parts.append("-rF")
    elif option.value == "session":
        parts.append(f"-xa '({_SESSIONS})'")
    elif option.value is not None:
        parts.append("-x")
    return " ".join(parts)


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
