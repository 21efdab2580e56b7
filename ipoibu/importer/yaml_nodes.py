# SPDX-License-Identifier: BSD-2-Clause
"""Nodes of YAML files, which know their lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ipoibu.base.distribution import install
from ipoibu.base.errors import UsageError
from ipoibu.daemon.config.config_file import read_text
from ipoibu.importer.draft import Place

_NODES_MAX: Final = 100_000
_MERGES_MAX: Final = 8


def read_documents(path: Path) -> list[Any]:
    """The root of each document; `UsageError` if the file is not readable or not YAML, or PyYAML is
    missing."""
    try:
        import yaml
    except ImportError as error:
        raise UsageError(
            f"{path}: a file of YAML needs PyYAML: {install('pyyaml')}, or pip install pyyaml"
        ) from error
    try:
        documents = list(yaml.compose_all(read_text(path), Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 0
        problem = getattr(error, "problem", None) or "not readable"
        raise UsageError(f"{Place(path, line)}: not a YAML file: {problem}") from error
    return [document for document in documents if document is not None]


def walk(root: Any) -> Iterator[tuple[str, Any]]:
    """Every key of a document with its value, each node once; aliases count once."""
    waiting: list[Any] = [root]
    seen: set[int] = set()
    while waiting and len(seen) < _NODES_MAX:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.id == "sequence":
            waiting += reversed(node.value)
        elif node.id == "mapping":
            for key, value in node.value:
                if key.id == "scalar":
                    yield key.value, value
            waiting += [value for _, value in reversed(node.value)]


def fields_of(node: Any, merges: int = _MERGES_MAX) -> dict[str, Any]:
    """The values of a mapping by key, with those that `<<` merges in; empty for anything else."""
    if node is None or node.id != "mapping":
        return {}
    own = {key.value: value for key, value in node.value if key.id == "scalar"}
    merged: dict[str, Any] = {}
    if "<<" in own and merges:
        for other in reversed(items_of(own.pop("<<"))):
            merged |= fields_of(other, merges - 1)
    return merged | own


def items_of(node: Any) -> list[Any]:
    """A list's items; any other value is a list of one, no value of none."""
    if node is None:
        return []
    return list(node.value) if node.id == "sequence" else [node]


def text_of(node: Any) -> str:
    """The text of a scalar; empty for null, for no value, and for a list or mapping."""
    if node is None or node.id != "scalar" or node.tag.endswith(":null"):
        return ""
    return str(node.value)


def texts_of(node: Any) -> list[str]:
    """The texts of a list, or of one scalar."""
    return [word for word in map(text_of, items_of(node)) if word]


def words_of(root: Any) -> list[str]:
    """Every scalar of a mapping or list, at any depth."""
    nodes = [node for _, value in walk(root) for node in (value, *items_of(value))]
    return [word for word in map(text_of, nodes) if word]


def place_of(path: Path, node: Any, key: str) -> Place:
    return Place(path, node.start_mark.line + 1, key)
