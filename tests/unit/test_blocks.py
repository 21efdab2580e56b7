# SPDX-License-Identifier: BSD-2-Clause
"""The blocks of code on the pages are what they say: configuration that the reader takes, commands that the
parser knows, programs that Python and the shell can read. tests/netns/test_pages.py runs sessions."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
import yaml

from ipoibu.cli.parser import COMMANDS, build
from ipoibu.daemon.config.interface_config import faults
from tests.doubles.page_blocks import ROOT, Block, blocks, missing, pages, simple_commands
from tests.doubles.page_sessions import PROGRAMS

LANGUAGES: Final = {"sh", "console", "text", "toml", "python", "ini", "yaml", "mermaid"}


def cases(*languages: str) -> list[pytest.param]:  # type: ignore[valid-type]
    found = [block for page in pages() for block in blocks(page, *languages)]
    assert found
    return [pytest.param(block, id=f"{block.page}:{block.line}") for block in found]


def test_every_block_says_what_it_is() -> None:
    for page in pages():
        fences = re.findall(r"^ *```(.*)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
        assert set(fences[::2]) <= LANGUAGES, page
        assert set(fences[1::2]) <= {""}, page
        assert len(fences) == 2 * len(list(blocks(page)))


# The files that a configuration may name
FILES: Final = {
    "partitions": "Default=0x7fff, ipoib: ALL=full;\n",
    "peers-file": "192.0.2.1\n",
    "peer-key-file": "0123456789abcdef" * 4 + "\n",
}


@pytest.mark.parametrize("block", cases("toml"))
def test_a_configuration_is_taken(block: Block, tmp_path: Path) -> None:
    given = tomllib.loads(block.text)
    missing_parts = []
    if "device" not in given:
        # By a subnet administrator, which says what groups there are.
        is_managed = "allmulticast" in given
        missing_parts.append('device = "mlx5_0"' if is_managed else 'device = "soft:eth0"')
    if any(key.startswith(("dhcp-", "lease-")) for key in given) and "address" not in given:
        missing_parts.append('address = ["dhcp"]')
    if given.keys() & {"guest", "guest-queue-pairs", "vlan"} and "ethernet" not in given:
        missing_parts.append("ethernet = true")
    text = block.text
    for key, content in FILES.items():
        if key in given:
            (tmp_path / key).write_text(content)
            (tmp_path / key).chmod(0o600)
            text = text.replace(f'"{given[key]}"', f'"{tmp_path / key}"')
    file = tmp_path / "ib0.toml"
    file.write_text("\n".join([*missing_parts, text]))
    assert [str(fault) for fault in faults(file)] == []


@pytest.mark.parametrize("block", cases("python"))
def test_a_program_is_python_and_its_imports_exist(block: Block) -> None:
    tree = compile(
        block.text,
        f"{block.page}:{block.line}",
        "exec",
        ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("ipoibu", "tests")):
            module = import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


def test_every_program_of_the_pages_is_run_by_a_test() -> None:
    assert {page for page in pages() for _ in blocks(page, "python")} == set(PROGRAMS)
    for file, text in PROGRAMS.values():
        assert text in (ROOT / file).read_text(encoding="utf-8"), file


def test_the_contract_of_a_fabric_is_that_of_the_code() -> None:
    (block,) = blocks("docs/understand/adding-a-fabric.md", "python")
    module = import_module("ipoibu.fabric.memory")
    sketched = [node for node in ast.parse(block.text).body if isinstance(node, ast.ClassDef)]
    assert len(sketched) == 2
    for node in sketched:
        real = getattr(module, node.name)
        names = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        assert all(name in vars(real) for name in names), names
        (base,) = real.__bases__
        assert base.__name__ == ast.unparse(node.bases[0])
        assert names >= base.__abstractmethods__


@pytest.mark.parametrize("block", cases("yaml", "ini"))
def test_a_file_of_others_can_be_read(block: Block) -> None:
    if block.language == "yaml":
        assert list(yaml.safe_load_all(block.text))
    elif block.text.startswith(("[", "# /etc/NetworkManager", "# /etc/systemd")):
        reader = configparser.RawConfigParser(strict=False)
        reader.read_string(block.text)
        assert reader.sections()


@pytest.mark.parametrize("block", cases("sh", "console"))
def test_commands_exist_with_these_options(block: Block) -> None:
    script = "\n".join(block.commands)
    checked = subprocess.run(["bash", "-n"], input=script, text=True, check=False, timeout=30)
    assert checked.returncode == 0
    assert block.commands
    for line in block.commands:
        for words in simple_commands(line):
            check(words)


def check(words: list[str]) -> None:
    """Our own commands and the targets of make; `ipoibu` may follow another command, such as podman."""
    for number, word in enumerate(words):
        if Path(word).name == "ipoibu" and words[number + 1 :][:1] != []:
            following = words[number + 1 :]
            if following[0] in COMMANDS:
                if following[0] in ("lab", "run") and "--" in following:  # as `main` does
                    following = following[: following.index("--")]
                build().parse_args(following)
                break
            assert number > 0, words
    if words and words[0] == "make":
        directory = words[words.index("-C") + 1] if "-C" in words else "."
        makefile = (ROOT / directory / "Makefile").read_text(encoding="utf-8")
        for target in words[1:]:
            if target not in ("-C", directory) and "=" not in target:
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_a_simple_command_is_found_within_a_line() -> None:
    line = "ip netns exec $X ipoibu ping 1.2.3.4 >/dev/null 2>&1 & sleep 1; a | b -c 'd; e'  # f"
    assert list(simple_commands(line)) == [
        ["ip", "netns", "exec", "$X", "ipoibu", "ping", "1.2.3.4"],
        ["sleep", "1"],
        ["a"],
        ["b", "-c", "d; e"],
    ]


@pytest.mark.parametrize(
    "words", [["ipoibu", "show", "--nothing"], ["make", "nothing"], ["ipoibu", "x"]]
)
def test_a_command_that_does_not_exist_is_found(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"nothing|'x'"):
        check(words)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (["64 bytes from 10.0.0.2: time=0.3 ms"], "64 bytes from 10.0.0.2: time=12.75 ms"),
        (["lladdr 00:2b:35:bb:...:02 R"], "x lladdr 00:11:22:33:fe:80:00:ff:fe:00:00:02 R"),
        (["qpn 0x2b35bb  guid 000000fff"], "qpn 0x1 guid 000000fffe000001"),
        (["one 1", "two 2"], "zero\none 3\nbetween\ntwo 4\n"),
    ],
)
def test_output_of_the_same_shape_is_found(expected: list[str], printed: str) -> None:
    assert missing(expected, printed) is None


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (["64 bytes from 10.0.0.2"], "64 bytes from 10.0.0.3"),
        (["dev ib0 up"], "dev ib1 up"),
        (["fe80::ff:fe00:2"], "fe80::ff:fe00:1"),
        (["a 1 REACHABLE"], "a 1 FAILED"),
        (["two 2", "one 1"], "one 1\ntwo 2"),
    ],
)
def test_output_of_another_shape_is_not_found(expected: list[str], printed: str) -> None:
    assert missing(expected, printed) is not None
