# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu completion`: a script for the shell that completes commands and options.

The parser, which has the options of `ipoibu.daemon.options`, defines the script.
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser

SHELLS: Final = ("bash", "zsh", "fish")


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a completion script",
        description="Print a completion script for a shell.",
        epilog="In bash: source <(ipoibu completion bash). In zsh, after compinit: "
        "source <(ipoibu completion zsh). In fish: ipoibu completion fish | source",
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.cli.parser import build

    parser = build()
    print({"bash": bash, "zsh": zsh, "fish": fish}[options.shell](parser))
    return 0


def _commands(parser: Parser) -> dict[str, tuple[str, Parser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            return {name: (helps.get(name, ""), sub) for name, sub in action.choices.items()}
    return {}


def _words(parser: Parser) -> list[str]:
    """Return options, and the values of positional arguments that have choices."""
    words = [option for action in parser._actions for option in action.option_strings]
    for action in parser._actions:
        if not action.option_strings and action.choices and action.dest != "command":
            words += [str(choice) for choice in action.choices]
            if isinstance(action, argparse._SubParsersAction):
                words += [word for sub in action.choices.values() for word in _words(sub)]
    return list(dict.fromkeys(words))


def bash(parser: Parser) -> str:
    commands = _commands(parser)
    cases = "\n".join(
        f"        {name}) words='{' '.join(_words(sub))}' ;;" for name, (_, sub) in commands.items()
    )
    return f"""_ipoibu() {{
    local words current=${{COMP_WORDS[COMP_CWORD]}}
    case ${{COMP_WORDS[1]}} in
{cases}
        *) words='{" ".join([*commands, *_words(parser)])}' ;;
    esac
    if [ "$COMP_CWORD" -eq 1 ]; then words='{" ".join([*commands, *_words(parser)])}'; fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _ipoibu ipoibu"""


def zsh(parser: Parser) -> str:
    """Return a script that zsh sources, or finds as the file _ipoibu in its $fpath."""
    body = "\n".join(_zsh_of(parser, 1))
    return f"""#compdef ipoibu
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
        words = f"({' '.join(map(str, action.choices))})" if action.choices else "_files"
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest
        value = f":{_plain(metavar)}:{words}"
        for option in action.option_strings:
            text = _plain(action.help or "").replace("[", "\\[").replace("]", "\\]")
            specs.append(f"*{option}[{text}]" + ("" if action.nargs == 0 else value))
        if not action.option_strings:
            prefix = {"?": ":", "*": "*", "+": "*", "...": "*"}.get(str(action.nargs), "")
            specs.append(prefix + value)
    return specs


def _plain(text: str) -> str:
    """The text with the colons that zsh would take for its own."""
    return text.replace("%%", "%").replace(":", "\\:")


def fish(parser: Parser) -> str:
    lines = ["complete -c ipoibu -e"]
    for name, (summary, sub) in _commands(parser).items():
        lines.append(
            f"complete -c ipoibu -n __fish_use_subcommand -f -a {name} -d {_quoted(summary)}"
        )
        condition = f"-n '__fish_seen_subcommand_from {name}'"
        for action in sub._actions:
            for option in action.option_strings:
                dashes = "-l" if option.startswith("--") else "-s"
                needs = "" if action.nargs == 0 else " -r"
                word = option.lstrip("-")
                text = _quoted(action.help or "")
                lines.append(f"complete -c ipoibu {condition} {dashes} {word}{needs} -d {text}")
            if not action.option_strings and action.choices:
                lines.append(f"complete -c ipoibu {condition} -f -a '{' '.join(action.choices)}'")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
