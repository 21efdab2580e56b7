# SPDX-License-Identifier: BSD-2-Clause
"""The manual pages that docs/make/man_pages.py makes: complete, and without a warning of groff."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ipoibu.cli.parser import COMMANDS
from ipoibu.daemon.config.options import OPTIONS

ROOT = Path(__file__).parents[2]
PAGES = ("ipoibu.1", "ipoibu.7", "ipoibu.toml.5")

sys.path.insert(0, str(ROOT / "docs/make"))
try:
    import roff
finally:
    sys.path.remove(str(ROOT / "docs/make"))

pytestmark = pytest.mark.skipif(
    shutil.which("groff") is None, reason="no groff here (package groff-base)"
)


def rendered(text: str, *options: str) -> str:
    """The page as plain text; groff must not warn."""
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii", "-P-cbou", "-rLL=200n", *options],
        input=text.replace("\\(bu", "o"),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("man")
    script = ROOT / "docs/make/man_pages.py"
    subprocess.run([sys.executable, str(script), str(directory)], check=True, timeout=60)
    assert sorted(path.name for path in directory.iterdir()) == sorted(PAGES)
    return {name: rendered((directory / name).read_text(encoding="utf-8")) for name in PAGES}


def test_every_command_and_option_has_an_entry(pages: dict[str, str]) -> None:
    page = pages["ipoibu.1"]
    for command in COMMANDS:
        assert re.search(rf"^   ipoibu {command}$", page, re.MULTILINE), command
    for nested in ("child add", "config check", "child del"):
        assert re.search(rf"^   ipoibu {nested}$", page, re.MULTILINE), nested
    for option in OPTIONS:
        head = re.escape(f"--{option.name} {option.metavar}")
        assert re.search(rf"^ +{head}$", page, re.MULTILINE), option.name
    assert re.search(r"^ +2 +Usage\.$", page, re.MULTILINE)


def test_every_key_of_the_file_has_an_entry_with_its_help(pages: dict[str, str]) -> None:
    page = " ".join(pages["ipoibu.toml.5"].split())
    for option in OPTIONS:
        text = " ".join(option.help.replace("`", "").split())
        assert f"{option.name} = {option.metavar}" in page
        assert text[1:] in page, option.name
    assert "[child.0x8001]" in page


def test_the_overview_has_the_chapters_of_its_sources(pages: dict[str, str]) -> None:
    titles = re.findall(r"^\S.*$", pages["ipoibu.7"], re.MULTILINE)
    assert titles[2:7] == ["DESCRIPTION", "WHY", "A FIRST LOOK", "FEATURES", "THE SERVICE"]
    assert "`" not in pages["ipoibu.7"]
    assert "](" not in pages["ipoibu.7"]


def test_the_pages_name_the_version_and_each_other(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        assert re.search(r"^ipoibu \d+\.\d+\.\d+ ", page, re.MULTILINE), name
        others = {"ipoibu(1)", "ipoibu.toml(5)", "ipoibu(7)"} - {re.sub(r"\.(\d)$", r"(\1)", name)}
        assert all(other in page for other in others)


def test_no_text_becomes_a_request_or_an_escape() -> None:
    text = r".br 'x a\nb `\fI -- .` **c-d** [e](f.md) [g](https://h.example)"
    page = rendered(f".TH X 1\n{roff.inline(text)}\n{roff.escape('.one' + chr(10) + 'two')}\n")
    assert r".br 'x a\nb \fI -- . c-d e g (https://h.example)" in page
    assert ".one two" in page


def test_markdown_keeps_its_structure() -> None:
    page = rendered(
        ".TH X 1\n"
        + "\n".join(
            roff.markdown(
                "## One `two`\n\nText\nflows.\n- first\n  goes on\n- second\n\n1. third\n\n```\n"
                "code  here\n.x\n```\n### Sub\n| a | b | c |\n|---|---|---|\n| `k` | v\\|w | u |\n"
            )
        )
    )
    lines = [line for line in page.split("\n")[1:] if line.strip()]
    assert lines[:-1] == [
        "ONE TWO",
        "       Text flows.",
        "       o first goes on",
        "       o second",
        "       1. third",
        "           code  here",
        "           .x",
        "   Sub",
        "       k      v|w; u",
    ]
