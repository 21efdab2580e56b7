# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu completion`: a script for the shell that completes commands and options.

The parser, which has the options of `ipoibu.daemon.options`, defines the script.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser

SHELLS: Final = ("bash", "zsh", "fish")


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a completion script",
        description="Print a completion script for a shell.",
        epilog="In bash and zsh: source <(ipoibu completion bash). "
        "In fish: ipoibu completion fish | source",
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.cli.parser import build

    parser = build()
    if options.shell == "fish":
        print(fish(parser))
    else:
        print(bash(parser, zsh=options.shell == "zsh"))
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


def bash(parser: Parser, *, zsh: bool = False) -> str:
    commands = _commands(parser)
    cases = "\n".join(
        f"        {name}) words='{' '.join(_words(sub))}' ;;" for name, (_, sub) in commands.items()
    )
    lines = ["autoload -U +X bashcompinit && bashcompinit"] if zsh else []
    lines.append(
        f"""_ipoibu() {{
    local words current=${{COMP_WORDS[COMP_CWORD]}}
    case ${{COMP_WORDS[1]}} in
{cases}
        *) words='{" ".join([*commands, *_words(parser)])}' ;;
    esac
    if [ "$COMP_CWORD" -eq 1 ]; then words='{" ".join([*commands, *_words(parser)])}'; fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _ipoibu ipoibu"""
    )
    return "\n".join(lines)


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
