# SPDX-License-Identifier: BSD-2-Clause
"""A method that records an input says `note_`, so that a reader does not take it for a question.

`moved` may ask whether something has moved, or say so; `note_moved` only says so. The inputs of `Endpoint`,
which programs call, have names of their own, and what passes them on bears the same.
"""

from __future__ import annotations

import ast
from typing import Final

from ipoibu.endpoint.api.host_inputs import HostInputs
from tests.unit.test_layers import MODULES

API: Final = {name for name in vars(HostInputs) if not name.startswith("_")}
IRREGULAR: Final = {
    "begun",
    "bound",
    "done",
    "found",
    "given",
    "gone",
    "heard",
    "held",
    "kept",
    "known",
    "left",
    "lost",
    "made",
    "met",
    "said",
    "seen",
    "sent",
    "shown",
    "spent",
    "taken",
    "told",
    "won",
    "written",
}
OTHER: Final = {"feed", "need", "speed"}  # nouns and verbs that end like participles
VERBS: Final = {"add", "check", "close", "disarm", "forget", "note", "remove", "set"}
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_participle(word: str) -> bool:
    return word in IRREGULAR or (word.endswith("ed") and word not in OTHER)


def sounds_like_a_question(name: str) -> bool:
    words = name.strip("_").removesuffix("_untrusted").split("_")
    return words[0] not in VERBS and (is_participle(words[0]) or is_participle(words[-1]))


def test_a_name_is_judged_by_its_words() -> None:
    asking = ["lost", "_group_changed", "sent_untrusted", "pushed_out", "part_gone"]
    saying = ["note_lost", "close_unused", "feed", "link_up", "set_received", "__enter__"]
    assert [name for name in (*asking, *saying) if sounds_like_a_question(name)] == asking


def test_a_method_that_answers_nothing_does_not_sound_like_a_question() -> None:
    found = [
        f"{module}.{owner.name}.{method.name}"
        for module, path in MODULES.items()
        for owner in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, FUNCTIONS)
        and (method.returns is None or ast.unparse(method.returns) in ("None", "object"))
        and method.name not in API
        and sounds_like_a_question(method.name)
    ]
    assert found == []
