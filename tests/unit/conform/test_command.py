# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu conform` finds a host, grades it, and writes what it found."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest

from ipoibu.base.errors import LinkError, UsageError
from ipoibu.cli.conform import grade
from ipoibu.cli.main import main
from ipoibu.cli.parser import build
from ipoibu.conform import symbols, test
from ipoibu.conform.catalogue import chosen
from ipoibu.conform.clauses import CLAUSES, UNSEEN, listed
from ipoibu.conform.discovery import discover
from ipoibu.conform.tables import rfc826
from tests.doubles.page_blocks import blocks
from tests.doubles.peer.host import HWADDR, IPV4, IPV6, IPV6_GLOBAL
from tests.doubles.peer.whole import WholeHost
from tests.doubles.peer.wire import Wire

PAGE = Path(__file__).resolve().parents[3] / "docs/understand/conformance.md"


def options(*words: str) -> argparse.Namespace:
    return build(["conform"]).parse_args(
        ["conform", "--device", "soft:vec0", "--peer", IPV4, "--seed", "1", *words]
    )


def test_the_peer_is_found_with_its_addresses_and_free_ones() -> None:
    wire = Wire()
    WholeHost(wire)
    peer, around = discover(wire, [IPV4, IPV6_GLOBAL], seed=1)
    assert (peer.hwaddr, peer.flags, peer.ipv4) == (HWADDR, 0x80, IPV4)
    assert (peer.ipv6, peer.ipv6_global) == (IPV6, IPV6_GLOBAL)
    assert IPV4 not in around.ipv4
    assert len(around.ipv4) > 64


def test_a_peer_that_does_not_answer_is_an_error() -> None:
    wire = Wire()
    WholeHost(wire)
    with pytest.raises(LinkError, match=r"10\.1\.2\.4: nobody on the link answers"):
        discover(wire, ["10.1.2.4"])
    with pytest.raises(UsageError, match="no IP address"):
        discover(wire, ["example"])


def test_reports_have_every_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wire = Wire()
    WholeHost(wire, "ARP of hardware type 1")
    files = [tmp_path / name for name in ("a.json", "a.xml", "a.md", "a.html")]
    words = [
        word
        for name, file in zip(("json", "junit", "markdown", "html"), files, strict=True)
        for word in (f"--{name}", str(file))
    ]
    assert grade(wire, options("--only", "R1,ARP-2", *words)) == 1
    out = capsys.readouterr().out
    assert re.search(r"^fail +ARP-1 ", out, re.MULTILINE)
    report = json.loads(files[0].read_text())
    failed = next(it for it in report["tests"] if it["id"] == "ARP-1")
    assert failed["outcome"] == "fail"
    assert "hardware_type=32" in failed["reason"]
    assert failed["repeat"].endswith(f"--peer {IPV4} --only ARP-1")
    assert {it["mark"] for it in failed["transcript"]} >= {"<", ">"}
    assert all(it["hex"] for it in failed["transcript"] if it["mark"] in "<>")
    suite = xml.parse(files[1]).getroot()
    assert suite.get("failures") == str(report["counts"]["fail"])
    assert "### ARP-1" in files[2].read_text()
    assert "ARP-1" in files[3].read_text()


def test_a_clean_host_ends_with_exit_status_0() -> None:
    wire = Wire()
    WholeHost(wire)
    assert grade(wire, options("--only", "R1")) == 0


def test_an_unknown_id_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="Z9: no test and no clause"):
        grade(Wire(), options("--only", "Z9"))
    assert main(["conform"]) == 2
    assert "needs --device and --peer" in capsys.readouterr().err


def test_the_test_of_the_page_is_one_of_the_suite() -> None:
    (block,) = blocks("docs/use/conform.md", "python")
    shown = eval(block.text, {**vars(test), **vars(rfc826), **vars(symbols)})
    (known,) = chosen(shown.id)
    assert (shown.title, shown.clauses) == (known.title, known.clauses)
    assert [type(it) for it in shown.steps] == [type(it) for it in known.steps]


def test_the_list_has_every_clause_of_the_page_in_its_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["conform", "--list", "--json"]) == 0
    shown = {it["id"]: it for it in json.loads(capsys.readouterr().out)}
    rows = re.findall(r"^\| (\w+\d+) \| ([MSm]) \| \w+ \| (.*) \|$", PAGE.read_text(), re.M)
    levels = {"M": "must", "S": "should", "m": "may"}
    assert {id_: (levels[level], text) for id_, level, text in rows} == {
        it.id: (it.level.value, shown[it.id]["demand"]) for it in CLAUSES
    }


def test_a_clause_has_tests_or_a_reason_why_not() -> None:
    assert [it["id"] for it in listed() if not it["tests"] and not it["unseen"]] == []
    assert [it["id"] for it in listed() if it["tests"] and it["unseen"]] == []
    assert set(UNSEEN) <= {it.id for it in CLAUSES}


def test_the_page_of_clauses_is_what_the_tables_say() -> None:
    script = PAGE.parents[1] / "make/list_conformance.py"
    subprocess.run([sys.executable, script, "--check"], check=True)
