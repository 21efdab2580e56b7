# SPDX-License-Identifier: BSD-2-Clause
"""The part of the site that is no file of `docs`; MkDocs calls these functions (`hooks` in mkdocs.yml).

Pages that lie elsewhere in the repository keep their paths on the site, and README.md becomes its first
page. Links lead to the site's pages, and name them by their titles; one to any other file of the repository
becomes its text. The page of
commands comes from the parser of the command line, as ipoibu(1) does. `dot` draws the state machines, and
drawings stand within their pages, so that they take the colours of the page.
"""

from __future__ import annotations

import html
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
try:
    from command_line import Command, commands
finally:
    del sys.path[0]

from ipoibu.cli.parser import build

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = "docs"

# Pages outside `docs`
ELSEWHERE: Final = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "ext/README.md",
    "ext/soft/README.md",
    "ipoibu/lab/machines/README.md",
)

READABLE: Final = 0.65  # how much a state machine may shrink before it scrolls

_FENCE: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(!?)\[([^\[\]]+)\]\(([^)\s]+)\)")
_DRAWING: Final = re.compile(r'<p><img alt="([^"]*)" src="([^"]+\.svg)" ?/?></p>')


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    fences = [{"name": "mermaid", "class": "machine", "format": _state_machine}]
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": fences}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in ELSEWHERE:
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, "reference/commands.md", content=commands_page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make every link to the repository one to the site."""
    own = page.file.src_uri
    directory = posixpath.dirname(own if own in ELSEWHERE else f"{DOCS}/{own}")

    def lead(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        name, hash_sign, anchor = target.partition("#")
        if not name or "://" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(directory, name))
        if not (ROOT / path).exists() and not (path == f"{DOCS}/reference/commands.md"):
            raise PluginError(f"{own}: {target} does not exist")
        uri = path if path in ELSEWHERE else path.removeprefix(f"{DOCS}/")
        if files.get_file_from_path(uri) is None:
            return text if "`" in text else f"`{text}`" if "/" in text else text
        if text.strip("`").endswith(".md"):
            text = _title(ROOT / path)
        relative = posixpath.relpath(uri, posixpath.dirname(own) or ".")
        return f"{mark}[{text}]({relative}{hash_sign}{anchor})"

    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(lead, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(lead, markdown[end:])])


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put drawings into the page instead of a reference."""

    def draw(match: re.Match[str]) -> str:
        path = ROOT / DOCS / posixpath.dirname(page.file.src_uri) / html.unescape(match[2])
        return f'<figure class="drawing" role="img" aria-label="{match[1]}">{_inner(path)}</figure>'

    return _DRAWING.sub(draw, content)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    return _restricted(output)


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    return _restricted(output) if template_name.endswith(".html") else output


def _restricted(output: str) -> str:
    """Forbid the browser to fetch anything from elsewhere, whatever the theme's scripts try."""
    policy = "default-src 'self' data: blob: 'unsafe-inline'"
    head, found, rest = output.partition("<head>")
    return f'{head}{found}<meta http-equiv="Content-Security-Policy" content="{policy}">{rest}'


def commands_page() -> str:
    """The commands with their options, as Markdown."""
    parser = build()
    lines = [
        "# Commands",
        "This page and the manual page ipoibu(1) come from the parser of the command line. "
        "[Options](options.md) has an example for each option of `ipoibu up`.",
        html.escape(parser.epilog or "", quote=False),
    ]
    for command in list(commands(parser))[1:]:
        lines += _command(command)
    return "\n\n".join(lines) + "\n"


def _command(command: Command) -> list[str]:
    depth = "#" * command.name.count(" ")
    usage = f"```{{ .text .usage }}\n{command.name} {command.usage}\n```"
    lines = [f"#{depth} {command.name}", usage]
    lines += [html.escape(" ".join(text.split()), quote=False) for text in command.texts]
    for item in command.items:
        head = f"{', '.join(item.names)} {item.value}".strip()
        lines.append(f"`{head}`\n:   {html.escape(' '.join(item.text.split()), quote=False)}")
    return lines


def _state_machine(source: str, *_: Any, **__: Any) -> str:
    """The SVG of a state diagram of Mermaid, as docs/make/draw_state_machines.py writes it."""
    lines = ["digraph {", 'rankdir=TB; node [shape=box style=rounded]; edge [arrowsize=0.7]; "[*]"']
    lines += ['[shape=point width=0.12 label=""];']
    for arrow in source.splitlines()[1:]:
        match = re.fullmatch(r" *(\S+) --> (\S+?)(?:: (.*))?", arrow)
        if match is None:
            raise PluginError(f"no arrow of a state machine: {arrow!r}")
        label = (match[3] or "").replace("<br>", "\\l") + "\\l"
        lines.append(f'"{match[1]}" -> "{match[2]}" [label="{label}"];')
    dot = [
        "dot",
        "-Tsvg",
        "-Gbgcolor=transparent",
        "-Nfontname=sans-serif",
        "-Efontname=sans-serif",
    ]
    dot += ["-Nfontsize=13", "-Efontsize=11"]
    try:
        done = subprocess.run(
            dot,
            input="\n".join([*lines, "}"]),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    except FileNotFoundError:
        raise PluginError("no dot here, which draws the state machines: install graphviz") from None
    svg = done.stdout[done.stdout.index("<svg") :]
    width_pt = float(re.match(r'<svg width="(\d+)pt"', svg)[1])  # type: ignore[index]
    readable = f'<svg style="min-width:{width_pt * READABLE:.0f}pt" '
    return f'<figure class="machine">{svg.replace("<svg ", readable, 1)}</figure>'


def _title(page: Path) -> str:
    """What the page's first heading says, or the name of a page that exists on the site alone."""
    if not page.exists():
        return page.stem.capitalize()
    with open(page, encoding="utf-8") as file:
        return file.readline().removeprefix("# ").strip()


def _inner(path: Path) -> str:
    """The drawing without what only a file of its own needs: its head and its colours."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"<style>.*?</style>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)
