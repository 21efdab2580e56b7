# SPDX-License-Identifier: BSD-2-Clause
"""The site of the documentation: it builds without a warning, and its pages fetch nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

import ipoibu
from ipoibu.cli.parser import COMMANDS
from ipoibu.daemon.config.options import OPTIONS

pytestmark = [pytest.mark.builds, pytest.mark.timeout(3600)]

ROOT: Final = Path(__file__).parents[2]
FETCHED: Final = {"src", "srcset", "data", "poster", "background", "action", "formaction"}
FETCHED_LINKS: Final = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "manifest"}


class Fetches(HTMLParser):
    """The addresses that a browser fetches by itself when it shows a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.found += [value for name, value in given.items() if name in FETCHED]
        if tag == "link" and FETCHED_LINKS & set(given.get("rel", "").split()):
            self.found.append(given.get("href", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", directory],
        cwd=ROOT,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=3500,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return directory


def text(site: Path, page: str) -> str:
    return (site / page).read_text(encoding="utf-8")


def test_a_browser_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        content = page.read_text(encoding="utf-8")
        policies = re.findall(
            r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', content
        )
        assert policies == ["default-src 'self' data: blob: 'unsafe-inline'"]
        outside = [url for url in Fetches(content).found if re.match(r"(\w+:)?//", url)]
        assert outside == [], page
    for sheet in site.rglob("*.css"):
        assert re.findall(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""", sheet.read_text()) == []


def test_every_page_of_the_documentation_is_on_the_site(site: Path) -> None:
    for page in (ROOT / "docs").glob("*/*.md"):
        built = page.relative_to(ROOT / "docs").with_suffix(".html")
        if page.name == "README.md":  # the first page of a folder, on GitHub and on the site
            built = built.with_name("index.html")
        assert (site / built).exists(), page
    assert '<a href="use/tutorial.html"' in text(site, "index.html")


def test_the_reference_comes_from_the_code(site: Path) -> None:
    commands = text(site, "reference/commands.html")
    assert all(f'id="ipoibu-{command}"' in commands for command in COMMANDS)
    assert all(f"--{option.name} {option.metavar}</code>" in commands for option in OPTIONS)
    interface = text(site, "reference/api.html")
    for name in set(ipoibu.__all__) - {"__version__"}:
        assert f'.{name}" class="doc doc-heading">' in interface, name
    assert "await_up" in interface


def test_state_machines_and_drawings_are_within_their_pages(site: Path) -> None:
    page = text(site, "reference/state-machines.html")
    source = (ROOT / "docs/reference/state-machines.md").read_text(encoding="utf-8")
    assert page.count('<figure class="machine"><svg') == source.count("```mermaid") > 10
    assert "stateDiagram" not in page
    pages = ("index.html", "understand/design.html")
    drawn = [text(site, each).count('<figure class="drawing"') for each in pages]
    assert drawn[0] == 1
    assert sum(drawn) == len(list((ROOT / "docs/drawings").iterdir()))


def test_a_page_that_is_opened_as_a_file_has_what_its_search_needs(site: Path) -> None:
    """A browser reads no file there, and starts no worker: the index and the worker are scripts."""
    script = text(site, "search/search_index.js")
    assert script.removeprefix("var __index = ") == text(site, "search/search_index.json")
    for page in site.rglob("*.html"):
        (source,) = re.findall(r'<script src="([^"]*iframe-worker.js)"', page.read_text("utf-8"))
        target = site / "iframe-worker.js"
        assert (page.parent / source).resolve() == target or page.name == "404.html"
    shim = target.read_text(encoding="utf-8")
    (bundle,) = (site / "assets/javascripts").glob("bundle.*.js")
    (worker,) = (site / "assets/javascripts/workers").glob("search.*.js")
    for name, wanted in (("Worker", bundle), ("IFrameWorker", worker)):  # the theme asks for these
        assert f"window.{name} = " in shim
        assert name in wanted.read_text(encoding="utf-8")
