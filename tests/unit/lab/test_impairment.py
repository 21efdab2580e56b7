# SPDX-License-Identifier: BSD-2-Clause
"""The words of netem for each machine, which tc itself judges before anything boots."""

from __future__ import annotations

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.lab.machines.impairment import impair_command, impairments


def test_words_are_for_all_or_for_one() -> None:
    assert impairments(["loss 1% delay 5ms"], "ab") == dict.fromkeys(
        "ab", ("loss", "1%", "delay", "5ms")
    )
    assert impairments(["b:loss 5%"], "ab") == {"b": ("loss", "5%")}
    both = impairments(["b:loss 5%", "duplicate 2%"], "abc")
    assert both == {"a": ("duplicate", "2%"), "b": ("loss", "5%"), "c": ("duplicate", "2%")}
    assert impairments([], "ab") == {}
    command = "tc qdisc replace dev vec0 root netem loss 5%"
    assert impair_command(("loss", "5%")) == command.split()


@pytest.mark.parametrize(
    "text",
    [
        "rate 100mbit",
        "delay 5ms 1ms 25% distribution normal",
        "loss gemodel 1% 10% 70% 0.1%",
        "duplicate 1% corrupt 0.1%",
        "delay 10ms reorder 25% 50% gap 5",
        "limit 50 loss random 0.3% 25%",
    ],
)
def test_all_words_of_netem_pass(text: str) -> None:
    assert impairments([text], "ab").keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("loss 1x", 'tc says: Illegal "loss percent"'),
        ("a:delay soon", "tc says: Illegal"),
        ("reorder 5%", "tc says: reordering not possible without specifying some delay"),
        ("loose 1%", 'tc says: What is "loose"?'),
        ("loss 1% dev lo", 'tc says: What is "dev"?'),
        ("delay 1ms 1ms distribution frob", "tc says: No distribution data for frob"),
        ("z:loss 1%", "there is no machine 'z' but a, b"),
        ("loss '1%", "No closing quotation"),
        ("", "has no words"),
        ("a: ", "has no words"),
    ],
)
def test_wrong_words_are_refused_with_the_explanation_of_tc(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refusal:
        impairments([text], "ab")
    assert f"--impair {text!r}" in str(refusal.value)
    assert said in str(refusal.value)


def test_a_host_without_tc_leaves_the_words_to_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert impairments(["loss 1x"], "a") == {"a": ("loss", "1x")}
