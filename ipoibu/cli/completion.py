# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu completion`: a script for the shell that completes commands, options, and their values.

The parser, which has the options of `ipoibu.daemon.config.options`, defines the script.
"""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from ipoibu.base.bounds import Choice
from ipoibu.base.device_name import PREFIX
from ipoibu.base.errors import IpoibuError, UsageError
from ipoibu.daemon.config.options import BY_NAME, Option
from ipoibu.daemon.interface.changes import CHANGEABLE

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser

SHELLS: Final = ("bash", "zsh", "fish")
NEIGH_WORDS: Final = ("show", "add", "replace", "del", "flush")


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a completion script",
        description="Print a completion script for a shell.",
        epilog="In bash: source <(ipoibu completion bash). In zsh, after compinit: "
        "source <(ipoibu completion zsh). In fish: ipoibu completion fish | source",
    )
    parser.add_argument("shell", metavar="SHELL", nargs="?", choices=SHELLS, help=", ".join(SHELLS))
    parser.add_argument(
        "--words",
        metavar="KIND",
        choices=list(DYNAMIC),
        help="print the running interfaces, or the devices of this machine: the scripts ask so",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.cli.parser import build

    if options.words is not None:
        print("\n".join(DYNAMIC[options.words]()))
        return 0
    if options.shell is None:
        raise UsageError(f"a shell is expected: {', '.join(SHELLS)}")
    parser = build()
    print({"bash": bash, "zsh": zsh, "fish": fish}[options.shell](parser))
    return 0


def _commands(parser: Parser) -> dict[str, tuple[str, Parser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            return {name: (helps.get(name, ""), sub) for name, sub in action.choices.items()}
    return {}


def interfaces() -> list[str]:
    """The running interfaces, without asking one."""
    from ipoibu.daemon.control.socket_paths import names

    try:
        return names()
    except IpoibuError:
        return []


def devices() -> list[str]:
    """The devices that this network namespace has."""
    netdevs = [f"{PREFIX}{name}" for name in _listed("/sys/class/net") if name != "lo"]
    return [*netdevs, *_listed("/sys/class/infiniband")]


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


class Value(NamedTuple):
    """What the value of an argument may be: some words, of a kind that a command lists, or of FILES."""

    kind: str = ""
    words: tuple[str, ...] = ()


INTERFACES: Final = "interfaces"
DEVICES: Final = "devices"
FILES: Final = "files"
DYNAMIC: Final = {INTERFACES: interfaces, DEVICES: devices}


def _value(action: argparse.Action, parser: Parser) -> Value:
    if action.choices:
        return Value(words=tuple(map(str, action.choices)))
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if not action.option_strings and metavar == "NAME":
        words = NEIGH_WORDS if parser.prog.endswith(" neigh") else ()
        return Value() if parser.prog.endswith(" up") else Value(INTERFACES, words)
    if metavar.startswith("DEV"):
        return Value(DEVICES)
    if metavar.startswith(("FILE", "DIR")):
        return Value(FILES)
    options = [BY_NAME[it[2:]] for it in action.option_strings if it[2:] in BY_NAME]
    return Value(words=_option_words(options[0]) if options else ())


def _option_words(option: Option) -> tuple[str, ...]:
    """The words of a choice, and those that the metavar has beside a form: `auto` of US|auto."""
    choice = getattr(option.read, "__self__", None)
    if isinstance(choice, Choice):
        return choice.words
    return tuple(word for word in option.metavar.split("|") if word.islower())


def _positionals(parser: Parser) -> list[argparse.Action]:
    return [action for action in parser._actions if not action.option_strings]


def _words(parser: Parser) -> list[str]:
    """Return options, and the values of positional arguments that are words."""
    words = [option for action in parser._actions for option in action.option_strings]
    for action in _positionals(parser):
        if action.dest not in ("command", "action"):
            words += _value(action, parser).words
    return list(dict.fromkeys(words))


def bash(parser: Parser) -> str:
    """Return a script for bash, which takes `:` and `=` for the ends of words: the function reads the line
    itself, and gives back what follows the last colon."""
    body = "\n".join(_bash_of(parser, 0))
    return f"""_ipoibu() {{
    local -a typed
    local line=${{COMP_LINE:0:COMP_POINT}} words= previous current
    read -ra typed <<< "$line"
    if [[ $line == *[[:space:]] ]]; then typed+=(''); fi
    local count=${{#typed[@]}}
    current=${{typed[count - 1]}}
    previous=${{typed[count - 2]}}
    if [[ $current == --*=* ]]; then previous=${{current%%=*}} current=${{current#*=}}; fi
    if [[ $previous == dev ]]; then
        words=$(ipoibu completion --words interfaces 2>/dev/null)
    else
{body}
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    local before=${{current%"${{current##*:}}"}}
    if [[ $COMP_WORDBREAKS == *:* ]]; then COMPREPLY=("${{COMPREPLY[@]#"$before"}}"); fi
}}
complete -o default -F _ipoibu ipoibu"""


def _bash_of(parser: Parser, place: int) -> list[str]:
    """The lines that choose the words after the one at `place`, whose parser this is."""
    indent = "    " * (place + 2)
    commands = _commands(parser)
    own = " ".join(_words(parser))
    if commands:
        lines = [
            f"{indent}if (( count <= {place + 2} )); then words='{' '.join([*commands, own])}'; else",
            f"{indent}case ${{typed[{place + 1}]}} in",
        ]
        for name, (_, sub) in commands.items():
            lines += [f"{indent}{name})", *_bash_of(sub, place + 1), f"{indent};;"]
        return [*lines, f"{indent}esac; fi"]
    lines = [f"{indent}case $previous in"]
    befores: dict[str, list[str]] = {}  # the words before a value, by the words that it may be
    for action in parser._actions:
        if action.option_strings and action.nargs != 0:
            value = _bash_words(_value(action, parser))
            befores.setdefault(value, []).extend(action.option_strings)
    for option in CHANGEABLE if parser.prog.endswith(" set") else ():
        value = _bash_words(Value(words=_option_words(BY_NAME[option])))
        befores.setdefault(value, []).append(option)
    lines += [f"{indent}{'|'.join(words)}) words={value} ;;" for value, words in befores.items()]
    lines.append(f"{indent}*) words='{own}'")
    if any(_value(action, parser).kind == INTERFACES for action in _positionals(parser)):
        lines.append(f'{indent}[[ $current == -* ]] || words+=" "{_bash_words(Value(INTERFACES))}')
    return [*lines, f"{indent};;", f"{indent}esac"]


def _bash_words(value: Value) -> str:
    """The words as bash gets them; none stands for the names of files."""
    if value.kind in DYNAMIC:
        return f"$(ipoibu completion --words {value.kind} 2>/dev/null)"
    return shlex.quote(" ".join(value.words))


def zsh(parser: Parser) -> str:
    """Return a script that zsh sources, or finds as the file _ipoibu in its $fpath."""
    body = "\n".join(_zsh_of(parser, 1))
    return f"""#compdef ipoibu
_ipoibu_words() {{
    compadd -- ${{(f)"$(ipoibu completion --words $1 2>/dev/null)"}}
}}
_ipoibu() {{
    local -a commands
{body}
}}
if [ "$funcstack[1]" = _ipoibu ]; then _ipoibu "$@"; else compdef _ipoibu ipoibu; fi"""


def _zsh_of(parser: Parser, place: int) -> list[str]:
    """The lines that complete what follows the word at `place`, whose parser this is."""
    indent = "    " * place
    commands = _commands(parser)
    if not commands:
        specs = " ".join(shlex.quote(spec) for spec in _zsh_specs(parser))
        shift = f'words=("${{(@)words[{place},-1]}}"); (( CURRENT -= {place - 1} ))'
        return [f"{indent}{shift}", f"{indent}_arguments {specs}"]
    own = [action for action in parser._actions if not action.option_strings]
    at = place + 1 + [isinstance(each, argparse._SubParsersAction) for each in own].index(True)
    words = " ".join(shlex.quote(f"{name}:{_plain(text)}") for name, (text, _) in commands.items())
    lines = [
        f"{indent}if (( CURRENT < {at} )); then _default; return; fi",
        f"{indent}commands=({words})",
        f"{indent}if (( CURRENT == {at} )); then _describe command commands; return; fi",
        f"{indent}case $words[{at}] in",
    ]
    for name, (_, sub) in commands.items():
        lines += [f"{indent}{name})", *_zsh_of(sub, at), f"{indent};;"]
    return [*lines, f"{indent}esac"]


def _zsh_specs(parser: Parser) -> list[str]:
    """The arguments of _arguments(zshcompsys(1)): options may be repeated, and take words or files."""
    specs = []
    for action in parser._actions:
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest
        value = f":{_plain(metavar)}:{_zsh_words(_value(action, parser))}"
        for option in action.option_strings:
            text = _plain(action.help or "").replace("[", "\\[").replace("]", "\\]")
            specs.append(f"*{option}[{text}]" + ("" if action.nargs == 0 else value))
        if not action.option_strings:
            prefix = {"?": ":", "*": "*", "+": "*", "...": "*"}.get(str(action.nargs), "")
            specs.append(prefix + value)
    return specs


def _zsh_words(value: Value) -> str:
    if value.kind in DYNAMIC:
        return f"{{_ipoibu_words {value.kind}}}"
    if value.words:
        return f"({' '.join(value.words)})"
    return "_files" if value.kind == FILES else " "


def _plain(text: str) -> str:
    """The text with the colons that zsh would take for its own."""
    return text.replace("%%", "%").replace(":", "\\:")


def fish(parser: Parser) -> str:
    lines = ["complete -c ipoibu -e"]
    for name, (summary, sub) in _commands(parser).items():
        lines.append(
            f"complete -c ipoibu -n __fish_use_subcommand -f -a {name} -d {_quoted(summary)}"
        )
        lines += _fish_of(sub, f"__fish_seen_subcommand_from {name}")
    return "\n".join(lines)


def _fish_of(parser: Parser, seen: str) -> list[str]:
    """The lines for a command, which the condition `seen` says."""
    lines = []
    begin = f"complete -c ipoibu -n {_quoted(seen)}"
    for action in parser._actions:
        words = _fish_words(_value(action, parser))
        for option in action.option_strings:
            dashes = "-l" if option.startswith("--") else "-s" if len(option) == 2 else "-o"
            needs = "" if action.nargs == 0 else " -x" + words if words else " -r"
            word, text = option.lstrip("-"), _quoted(action.help or "")
            lines.append(f"{begin} {dashes} {word}{needs} -d {text}")
        if not action.option_strings and words:
            lines.append(f"{begin} -f{words}")
    for name, (_, sub) in _commands(parser).items():
        lines += _fish_of(sub, f"{seen}; and __fish_seen_subcommand_from {name}")
    return lines


def _fish_words(value: Value) -> str:
    if value.kind in DYNAMIC:
        return f" -a '(ipoibu completion --words {value.kind} 2>/dev/null)'"
    return f" -a {_quoted(' '.join(value.words))}" if value.words else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
