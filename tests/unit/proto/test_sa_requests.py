# SPDX-License-Identifier: BSD-2-Clause
"""Requests to the subnet administrator in virtual time: retries, order, late answers, reports."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ipoibu.base.addr import Gid
from ipoibu.base.limits import SA_JITTER, SA_RECENT_MAX
from ipoibu.proto.effects import Count
from ipoibu.proto.sa.requests import (
    Answered,
    Change,
    Failed,
    Pace,
    Reported,
    SaAddress,
    SaChanged,
    SaEffect,
    SaRequests,
    Transmit,
)
from ipoibu.proto.sa.transaction import Answer, Failure, Query
from ipoibu.wire import mad, rmpp, sa
from ipoibu.wire.mad import Method
from ipoibu.wire.notice import Notice, Trap
from ipoibu.wire.sa import Attribute, SaMad, Status

SA: Final = SaAddress(1)
JOIN: Final = Query(Method.SET, Attribute.MC_MEMBER_RECORD, b"\x12" * 52, 0x10083)
LOOK_UP: Final = Query(Method.GET, Attribute.PATH_RECORD, b"\x34" * 64, 0x380C)
LIST: Final = Query(Method.GET_TABLE, Attribute.MC_MEMBER_RECORD)
LEAVE: Final = Query(Method.DELETE, Attribute.MC_MEMBER_RECORD, b"\x12" * 52, 0x10003)
PACE: Final = Pace(timeout_s=1.0, attempts=4, outstanding=2, queue=3)
GROUP: Final = Gid.parse("ff12:401b:ffff::f01:203")
RESPONSES: Final = {Method.GET: 0x81, Method.SET: 0x81, Method.GET_TABLE: 0x92, Method.DELETE: 0x95}


class Client:
    """`SaRequests` with its sent datagrams, outcomes, counters and events."""

    def __init__(self, pace: Pace = PACE, seed: int = 1) -> None:
        self.requests = SaRequests(random.Random(seed), pace)
        self.requests.sa_lid = SA.lid
        self.now = 0.0
        self.sent: list[SaMad] = []
        self.transmits: list[Transmit] = []
        self.outcomes: dict[Hashable, Answer | Failure] = {}
        self.counts: Counter[str] = Counter()
        self.events: list[Notice | Change] = []

    def ask(self, key: Hashable, query: Query = JOIN) -> None:
        self.take(self.requests.request(self.now, key, query))

    def cancel(self, key: Hashable) -> None:
        self.take(self.requests.cancel(self.now, key))

    def move(self, sa_lid: int) -> None:
        self.take(self.requests.note_moved(self.now, sa_lid))

    def receive(self, message: SaMad, peer: SaAddress = SA) -> None:
        self.take(self.requests.note_received(self.now, peer, message.pack()))

    def receive_raw(self, raw: bytes, peer: SaAddress = SA) -> None:
        self.take(self.requests.note_received(self.now, peer, raw))

    def wait(self, until: float) -> None:
        """Let time pass, from alarm to alarm."""
        while (at := self.requests.deadline()) is not None and at <= until:
            self.now = at
            self.take(self.requests.timer(at))
        self.now = until

    def take(self, effects: list[SaEffect]) -> None:
        for effect in effects:
            match effect:
                case Transmit(raw):
                    self.transmits.append(effect)
                    self.sent.append(sa.parse_untrusted(raw))
                case Answered(key, answer):
                    assert key not in self.outcomes
                    self.outcomes[key] = answer
                case Failed(key, failure):
                    assert key not in self.outcomes
                    self.outcomes[key] = failure
                case Reported(notice):
                    self.events.append(notice)
                case SaChanged(change):
                    self.events.append(change)
                case Count(reason):
                    self.counts[reason] += 1


def answer_to(request: SaMad, status: int = 0, data: bytes = b"\x56" * 52) -> SaMad:
    method = RESPONSES[Method(request.method)]
    return SaMad(method, request.attribute, request.tid, status, mask=request.mask, data=data)


def segment(request: SaMad, number: int, count: int, size: int = 200) -> SaMad:
    size_in_header = 20 + size if number == count else 0
    header = rmpp.data(number, size_in_header, first=number == 1, last=number == count)
    data = bytes((number,)) * size
    return SaMad(0x92, request.attribute, request.tid, rmpp=header, record_bytes=56, data=data)


# -- one request -----------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [JOIN, LOOK_UP, LEAVE])
def test_a_request_is_sent_at_once_and_its_answer_ends_it(query: Query) -> None:
    client = Client()
    client.ask("a", query)
    [request] = client.sent
    assert (request.method, request.attribute) == (query.method, query.attribute)
    assert (request.mask, request.data[: len(query.data)]) == (query.mask, query.data)
    client.receive(answer_to(request))
    assert client.outcomes == {"a": Answer(0, b"\x56" * 52 + bytes(148))}
    assert (len(client.requests), client.requests.deadline()) == (0, None)


def test_a_refusal_is_an_answer_too() -> None:
    client = Client()
    client.ask("a")
    client.receive(answer_to(client.sent[0], Status.REQUEST_INVALID))
    answer = client.outcomes["a"]
    assert isinstance(answer, Answer)
    assert answer.status == Status.REQUEST_INVALID


def test_only_the_lower_half_of_a_transaction_id_is_ours() -> None:
    client = Client()
    client.ask("a")
    request = client.sent[0]
    # Linux and umad2sim put the agent's number into the upper half
    client.receive(answer_to(replace(request, tid=0x7 << 32 | request.tid & 0xFFFFFFFF)))
    assert "a" in client.outcomes


def test_clients_begin_with_different_transaction_ids() -> None:
    tids = set()
    for seed in range(50):
        client = Client(seed=seed)
        client.ask("a")
        tids.add(client.sent[0].tid & 0xFFFFFFFF)
        assert client.sent[0].tid >> 32
    assert len(tids) == 50


def test_the_kernel_is_to_wait_as_long_as_any_of_our_retries() -> None:
    client = Client()
    client.ask("a")
    client.wait(100)
    assert "a" in client.outcomes
    assert all(sent.wait_s >= 15 * (1 + SA_JITTER) for sent in client.transmits)


def test_a_request_that_nobody_answers_is_sent_again_after_times_that_double() -> None:
    client = Client()
    client.ask("a")
    times = [0.0]
    while "a" not in client.outcomes:
        before = len(client.sent)
        at = client.requests.deadline()
        assert at is not None
        client.wait(at)
        if len(client.sent) > before:
            times.append(at)
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(waits) == PACE.attempts - 1
    for attempt, wait in enumerate(waits):
        assert 2**attempt * (1 - SA_JITTER) <= wait <= 2**attempt * (1 + SA_JITTER)
    assert client.outcomes["a"] is Failure.TIMEOUT
    assert client.now <= PACE.longest_s
    assert (client.counts["sa_retry"], client.counts["sa_failed"]) == (3, 1)


def test_what_waits_goes_to_another_sa_at_once_with_all_attempts() -> None:
    """A standby SM takes over at another LID while the last attempt waits its 8 s."""
    client = Client()
    client.ask("a")
    client.wait(10)
    assert len(client.sent) == PACE.attempts
    client.move(7)
    assert len(client.sent) == PACE.attempts + 1
    client.receive(answer_to(client.sent[-1]))  # from the old SA
    assert client.counts["sa_foreign"] == 1
    client.wait(15)  # 1 s and 2 s more, each up to a quarter longer
    assert len(client.sent) == PACE.attempts + 3
    client.receive(answer_to(client.sent[-1]), SaAddress(7))
    assert client.outcomes == {"a": Answer(0, b"\x56" * 52 + bytes(148))}
    client.wait(100)
    assert client.events == []  # no SA fell silent


def test_a_table_of_an_sa_that_has_moved_is_asked_for_again() -> None:
    client = Client()
    client.ask("a", LIST)
    client.receive(segment(client.sent[0], 1, 2))
    sent = len(client.sent)
    client.move(7)
    [again] = client.sent[sent:]
    assert (again.method, again.rmpp.type) == (Method.GET_TABLE, rmpp.Type.NONE)
    client.receive(segment(again, 1, 1), SaAddress(7))
    assert isinstance(client.outcomes["a"], Answer)


@pytest.mark.parametrize("lid", [SA.lid, 0], ids=["the same", "none"])
def test_nothing_goes_out_again_without_another_sa(lid: int) -> None:
    client = Client()
    for key in "abc":  # the last one waits for its turn
        client.ask(key)
    client.move(lid)
    assert len(client.sent) == PACE.outstanding
    client.move(7)
    assert len(client.sent) == 2 * PACE.outstanding


def test_clients_that_lost_the_same_sa_do_not_retry_in_step() -> None:
    times = set()
    for seed in range(20):
        client = Client(seed=seed)
        client.ask("a")
        times.add(client.requests.deadline())
    assert len(times) == 20


def test_each_attempt_has_an_id_of_its_own_and_any_answer_will_do() -> None:
    client = Client()
    client.ask("a")
    client.wait(4)
    first, second, *_ = client.sent
    assert first.tid != second.tid
    assert (first.data, first.mask) == (second.data, second.mask)
    client.receive(answer_to(first))
    assert isinstance(client.outcomes["a"], Answer)
    client.receive(answer_to(second))
    assert client.counts["sa_duplicate"] == 1


def test_an_sa_that_is_busy_is_asked_again_later() -> None:
    client = Client()
    client.ask("a")
    client.receive(answer_to(client.sent[0], Status.BUSY))
    assert (client.outcomes, len(client.sent), client.counts["sa_busy"]) == ({}, 1, 1)
    client.wait(2)
    client.receive(answer_to(client.sent[1]))
    assert isinstance(client.outcomes["a"], Answer)


def test_a_key_is_for_one_request_at_a_time() -> None:
    client = Client()
    client.ask("a")
    with pytest.raises(ValueError, match="under way"):
        client.ask("a")


# -- many requests ---------------------------------------------------------------------------------


def test_no_more_are_outstanding_than_may_be_and_the_rest_keep_their_order() -> None:
    client = Client()
    for number in range(5):
        client.ask(number, replace(JOIN, mask=number))
    assert [request.mask for request in client.sent] == [0, 1]
    client.receive(answer_to(client.sent[1]))
    assert [request.mask for request in client.sent] == [0, 1, 2]
    client.receive(answer_to(client.sent[0]))
    client.receive(answer_to(client.sent[2]))
    assert [request.mask for request in client.sent] == [0, 1, 2, 3, 4]


def test_more_than_the_line_holds_are_refused_at_once() -> None:
    client = Client()
    for number in range(6):
        client.ask(number)
    assert client.outcomes == {5: Failure.QUEUE_FULL}
    assert client.counts["sa_queue_full"] == 1
    assert len(client.requests) == 5


@pytest.mark.parametrize("number", range(5))
def test_a_request_can_be_cancelled_in_line_or_on_the_way(number: int) -> None:
    client = Client()
    for key in range(5):
        client.ask(key, replace(JOIN, mask=key))
    client.cancel(number)
    served: list[int] = []
    while len(client.requests):
        request = next(one for one in client.sent if one.mask not in (*served, number))
        served.append(request.mask)
        client.receive(answer_to(request))
    assert served == [key for key in range(5) if key != number]
    assert set(client.outcomes) == set(served)


def test_the_answer_to_a_cancelled_request_is_late() -> None:
    client = Client()
    client.ask("a")
    client.cancel("a")
    client.receive(answer_to(client.sent[0]))
    assert (client.outcomes, client.counts) == ({}, {"sa_late": 1})
    client.cancel("a")
    assert client.requests.deadline() is None


def test_stopping_forgets_everything_and_stops_every_timer() -> None:
    client = Client()
    for key in range(5):
        client.ask(key)
    client.wait(40)
    client.take(client.requests.stop(client.now))
    assert (len(client.requests), client.requests.deadline()) == (0, None)


# -- foreign datagrams --------------------------------------------------------------------------


def test_answers_to_nothing_are_counted() -> None:
    client = Client()
    client.receive(SaMad(0x81, Attribute.PATH_RECORD, 12345))
    assert client.counts == {"sa_unexpected": 1}


def test_a_request_to_us_is_not_answered() -> None:
    client = Client()
    client.receive(SaMad(Method.GET, Attribute.PATH_RECORD, 12345))
    assert (client.sent, client.counts) == ([], {"sa_unexpected": 1})


@pytest.mark.parametrize(
    "wrong",
    [{"method": 0x92}, {"method": 0x95}, {"method": 0x02}, {"attribute": Attribute.PATH_RECORD}],
)
def test_an_answer_of_another_kind_does_not_end_a_request(wrong: dict[str, int]) -> None:
    client = Client()
    client.ask("a")
    client.receive(replace(answer_to(client.sent[0]), **wrong))  # type: ignore[arg-type]
    assert (client.outcomes, client.counts["sa_unexpected"]) == ({}, 1)
    client.receive(answer_to(client.sent[0]))
    assert "a" in client.outcomes


def test_only_the_sa_itself_is_believed() -> None:
    client = Client()
    client.ask("a")
    client.receive(answer_to(client.sent[0]), SaAddress(7))
    assert (client.outcomes, client.counts) == ({}, {"sa_foreign": 1})


def test_malformed_datagrams_are_counted_by_reason() -> None:
    client = Client()
    client.receive_raw(b"\x01")
    client.receive_raw(bytes(256))
    client.receive_raw(b"\x01\x04\x02" + bytes(253))
    assert client.counts == {"mad_short": 1, "mad_version": 1, "sa_class": 1}


def test_memory_of_past_transactions_is_bounded() -> None:
    client = Client(replace(PACE, outstanding=1))
    for number in range(SA_RECENT_MAX + 10):
        client.ask(number)
        client.receive(answer_to(client.sent[-1]))
    client.receive(answer_to(client.sent[0]))
    client.receive(answer_to(client.sent[-1]))
    assert client.counts == {"sa_unexpected": 1, "sa_duplicate": 1}


# -- tables ----------------------------------------------------------------------------------------


def test_a_table_in_segments_is_put_together_and_acknowledged() -> None:
    """Q4."""
    client = Client()
    client.ask("a", LIST)
    [request] = client.sent
    for number in (1, 2, 3):
        client.receive(segment(request, number, 3, 68 if number == 3 else 200))
    answer = client.outcomes["a"]
    assert answer == Answer(0, b"\x01" * 200 + b"\x02" * 200 + b"\x03" * 68, 56)
    acks = client.sent[1:]
    assert [(ack.rmpp.type, ack.rmpp.data1) for ack in acks] == [
        (rmpp.Type.ACK, 1),
        (rmpp.Type.ACK, 3),
    ]
    # the method of the acknowledged message, with the response bit inverted; the same transaction
    assert {(ack.method, ack.tid & 0xFFFFFFFF) for ack in acks} == {
        (Method.GET_TABLE, request.tid & 0xFFFFFFFF)
    }
    assert all(sent.wait_s == 0 for sent in client.transmits[1:])


def test_a_transfer_that_stalls_is_aborted_and_asked_for_again() -> None:
    """Q5."""
    client = Client()
    client.ask("a", LIST)
    client.receive(segment(client.sent[0], 1, 3))
    client.wait(1.5)
    _, ack, aborted, again = client.sent
    assert ack.rmpp.type is rmpp.Type.ACK
    assert aborted.rmpp.type is rmpp.Type.ABORT
    assert aborted.rmpp.status == rmpp.Status.TOTAL_TIME_TOO_LONG
    assert (again.method, again.rmpp.type) == (Method.GET_TABLE, rmpp.Type.NONE)
    # the client keeps nothing of the first transfer
    client.receive(segment(client.sent[0], 2, 3))
    for number in (1, 2):
        client.receive(segment(again, number, 2))
    answer = client.outcomes["a"]
    assert isinstance(answer, Answer)
    assert answer.data == b"\x01" * 200 + b"\x02" * 200


def test_a_transfer_begins_with_its_first_segment_whichever_attempt_it_answers() -> None:
    client = Client()
    client.ask("a", LIST)
    client.wait(1.5)
    first, second = client.sent
    client.receive(segment(second, 2, 2))
    assert len(client.sent) == 2
    client.receive(segment(first, 1, 2))
    assert client.sent[-1].rmpp == rmpp.ack(1, 65)
    client.receive(segment(second, 1, 2))
    client.receive(segment(first, 2, 2))
    assert isinstance(client.outcomes["a"], Answer)
    assert client.counts["sa_duplicate"] == 1


def test_a_sender_that_repeats_one_segment_for_ever_is_given_up() -> None:
    client = Client()
    client.ask("a", LIST)
    client.receive(segment(client.sent[0], 1, 3))
    for tenth in range(1, 15):
        client.receive(segment(client.sent[0], 1, 3))
        client.wait(tenth / 10)
    assert client.sent[-1].method == Method.GET_TABLE
    assert client.counts["sa_retry"] == 1


def test_a_transfer_that_the_sender_stops_fails() -> None:
    client = Client()
    client.ask("a", LIST)
    client.receive(segment(client.sent[0], 1, 3))
    stop = replace(answer_to(client.sent[0]), rmpp=rmpp.abort(rmpp.Status.RESOURCES_EXHAUSTED))
    client.receive(stop)
    assert client.outcomes == {"a": Failure.STOPPED}


def test_a_transfer_that_makes_no_sense_fails_and_is_aborted() -> None:
    client = Client()
    client.ask("a", LIST)
    bad = replace(segment(client.sent[0], 1, 1), rmpp=rmpp.data(1, 999, first=True, last=True))
    client.receive(bad)
    assert client.outcomes == {"a": Failure.BROKEN}
    assert client.sent[-1].rmpp == rmpp.abort(rmpp.Status.INCONSISTENT_LENGTH)


def test_the_last_ack_is_repeated_for_a_sender_that_missed_it() -> None:
    client = Client()
    client.ask("a", LIST)
    last = segment(client.sent[0], 1, 1)
    client.receive(last)
    client.receive(last)
    assert [sent.rmpp.data1 for sent in client.sent[1:]] == [1, 1]
    assert client.counts["sa_duplicate"] == 1


def test_a_table_may_be_refused_in_one_datagram() -> None:
    client = Client()
    client.ask("a", LIST)
    client.receive(answer_to(client.sent[0], Status.NO_RECORDS))
    answer = client.outcomes["a"]
    assert isinstance(answer, Answer)
    assert answer.status == Status.NO_RECORDS


def test_cancelling_a_transfer_stops_its_sender() -> None:
    client = Client()
    client.ask("a", LIST)
    client.receive(segment(client.sent[0], 1, 3))
    client.cancel("a")
    assert client.sent[-1].rmpp.type is rmpp.Type.ABORT


# -- reports ---------------------------------------------------------------------------------------


def report(tid: int = 9, trap: Trap = Trap.GROUP_CREATED) -> SaMad:
    return SaMad(Method.REPORT, Attribute.NOTICE, tid, data=Notice(trap, GROUP).pack())


def test_m2_a_report_is_notified_and_acknowledged_to_its_sender() -> None:
    """M2, Q3."""
    client = Client()
    client.receive(report())
    assert client.events == [Notice(Trap.GROUP_CREATED, GROUP)]
    [sent] = client.transmits
    assert (sent.to, sent.wait_s) == (SA, 0)
    assert (client.sent[0].method, client.sent[0].tid) == (Method.REPORT_RESPONSE, 9)
    assert client.sent[0].data[:80] == report().data


def test_a_repeated_report_is_notified_once_and_acknowledged_each_time() -> None:
    client = Client()
    for _ in range(3):
        client.receive(report())
    client.receive(report(tid=10))
    assert len(client.events) == 2
    assert len(client.sent) == 4
    assert client.counts == {"sa_duplicate": 2}


def test_a_report_with_the_id_of_an_earlier_one_is_another() -> None:
    """OpenSM numbers its reports from the same number after each start."""
    client = Client()
    client.receive(report(trap=Trap.GROUP_CREATED))
    client.receive(report(trap=Trap.GROUP_DELETED))
    traps = Trap.GROUP_CREATED, Trap.GROUP_DELETED
    assert client.events == [Notice(trap, GROUP) for trap in traps]


def test_a_report_that_nobody_understands_is_acknowledged_all_the_same() -> None:
    client = Client()
    client.receive(SaMad(Method.REPORT, Attribute.NOTICE, 1, data=bytes(80)))
    client.receive(SaMad(Method.REPORT, 0x99, 2))
    assert [sent.method for sent in client.sent] == [Method.REPORT_RESPONSE] * 2
    assert client.counts == {"notice_trap": 1, "sa_unexpected": 1}


def test_memory_of_reports_is_bounded() -> None:
    client = Client()
    for tid in range(SA_RECENT_MAX + 1):
        client.receive(report(tid))
    client.receive(report(0))
    assert len(client.events) == SA_RECENT_MAX + 2


# -- the SA falls silent and comes back ------------------------------------------------------------


def test_an_sa_that_fell_silent_is_asked_until_it_is_back() -> None:
    client = Client()
    client.ask("a")
    client.wait(19)
    assert client.events == [Change.SILENT]
    assert not client.requests.is_answering
    asked = len(client.sent)
    client.wait(200)
    probes = client.sent[asked:]
    assert {probe.attribute for probe in probes} == {Attribute.CLASS_PORT_INFO}
    # 1, 2, 4, 8, 16, 16 ... seconds apart, with jitter
    assert 10 <= len(probes) <= 18
    client.receive(answer_to(probes[-1]))
    assert client.events == [Change.SILENT, Change.RETURNED]
    asked = len(client.sent)
    client.wait(1000)
    assert len(client.sent) == asked
    assert client.outcomes == {"a": Failure.TIMEOUT}


def test_any_answer_ends_the_silence() -> None:
    client = Client()
    client.ask("a")
    client.wait(19)
    client.ask("b")
    client.receive(answer_to(client.sent[-1]))
    assert client.events == [Change.SILENT, Change.RETURNED]
    client.wait(1000)
    assert client.events == [Change.SILENT, Change.RETURNED]


def test_a_late_answer_ends_the_silence_too() -> None:
    client = Client()
    client.ask("a")
    client.wait(19)
    client.receive(answer_to(client.sent[0]))
    assert client.events == [Change.SILENT, Change.RETURNED]


def test_an_sa_that_answers_others_is_not_silent() -> None:
    client = Client()
    client.ask("a")
    client.wait(3)
    client.ask("b")
    client.receive(answer_to(client.sent[-1]))
    client.wait(40)
    assert client.outcomes["a"] is Failure.TIMEOUT
    assert client.events == []


def test_probing_does_not_wait_for_the_line_to_move() -> None:
    client = Client(replace(PACE, queue=100))
    for number in range(40):
        client.ask(number)
    client.wait(25)
    probes = [one for one in client.sent if one.attribute == Attribute.CLASS_PORT_INFO]
    assert probes
    assert len(client.requests) > 30


# -- everything at once ----------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 1 << 32), st.integers(1, 12))
def test_over_a_bad_fabric_every_request_ends_once(seed: int, count: int) -> None:
    """The fabric loses three of four answers, doubles half of the others, and delays all."""
    rng = random.Random(seed)
    client = Client(replace(PACE, queue=50), seed)
    for number in range(count):
        client.ask(number, rng.choice((JOIN, LOOK_UP, LIST)))
    answered = 0
    while len(client.outcomes) < count:
        at = client.requests.deadline()
        assert at is not None
        client.wait(at)
        while answered < len(client.sent):
            request = client.sent[answered]
            answered += 1
            if request.rmpp.type is not rmpp.Type.NONE or rng.random() < 0.75:
                continue
            for _ in range(rng.choice((1, 2))):
                client.receive(
                    segment(request, 1, 1)
                    if request.method == Method.GET_TABLE
                    else answer_to(request)
                )
    assert client.now < 60 * count
    assert set(client.outcomes) == set(range(count))
    if client.requests.is_answering:
        client.wait(client.now + 60)
        assert len(client.requests) == 0


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=256), max_size=20), st.integers(0, 3))
def test_no_bytes_of_a_peer_raise_or_grow_anything(datagrams: list[bytes], asked: int) -> None:
    client = Client()
    for number in range(asked):
        client.ask(number, (JOIN, LIST, LOOK_UP)[number])
    head = b"\x01\x03\x02"
    for datagram in datagrams:
        client.receive_raw(datagram)
        client.receive_raw(head + datagram)
        if client.sent:
            tid = client.sent[0].tid.to_bytes(8, "big")
            known = head + datagram[:5].ljust(5, b"\0") + tid + datagram[5:].ljust(240, b"\0")
            client.receive_raw(known)
    assert len(client.requests) <= asked + 1


class Chaos(RuleBasedStateMachine):
    """Any order of requests, answers, segments, cancels and waits."""

    def __init__(self) -> None:
        super().__init__()
        self.client = Client(replace(PACE, queue=10))
        self.asked: set[int] = set()
        self.cancelled: set[int] = set()

    @rule(query=st.sampled_from([JOIN, LOOK_UP, LIST, LEAVE]))
    def ask(self, query: Query) -> None:
        key = len(self.asked)
        self.asked.add(key)
        self.client.ask(key, query)

    @rule(pick=st.randoms(use_true_random=False), status=st.sampled_from([0, 1, 0x200]))
    def answer(self, pick: random.Random, status: int) -> None:
        self._with_request(pick, lambda request: self.client.receive(answer_to(request, status)))

    @rule(pick=st.randoms(use_true_random=False), number=st.integers(0, 5), count=st.integers(1, 5))
    def send_segment(self, pick: random.Random, number: int, count: int) -> None:
        self._with_request(
            pick, lambda request: self.client.receive(segment(request, number, count))
        )

    @rule(pick=st.randoms(use_true_random=False))
    def stop(self, pick: random.Random) -> None:
        aborted = rmpp.abort(rmpp.Status.RESOURCES_EXHAUSTED)
        self._with_request(
            pick, lambda request: self.client.receive(replace(answer_to(request), rmpp=aborted))
        )

    @rule(pick=st.randoms(use_true_random=False))
    def cancel(self, pick: random.Random) -> None:
        if self.asked:
            key = pick.choice(sorted(self.asked))
            self.cancelled.add(key)
            self.client.cancel(key)

    @rule(seconds=st.floats(0, 30))
    def wait(self, seconds: float) -> None:
        self.client.wait(self.client.now + seconds)

    @rule(sa_lid=st.integers(0, 2))
    def move(self, sa_lid: int) -> None:
        self.client.move(sa_lid)

    @invariant()
    def at_most_so_many_are_outstanding(self) -> None:
        assert len(self.client.requests) <= PACE.outstanding + 1 + 10  # a probe, and those in line

    def teardown(self) -> None:
        """All requests end, and no state is left."""
        self.client.wait(self.client.now + 20 * PACE.longest_s)
        assert self.asked - self.cancelled <= set(self.client.outcomes)
        self.client.take(self.client.requests.stop(self.client.now))
        assert self.client.requests.deadline() is None

    def _with_request(self, pick: random.Random, act: Callable[[SaMad], None]) -> None:
        known = [
            one
            for one in self.client.sent
            if one.rmpp.type is rmpp.Type.NONE and not one.method & mad.RESPONSE
        ]
        if known:
            act(pick.choice(known))


TestChaos = Chaos.TestCase
TestChaos.settings = settings(max_examples=60, stateful_step_count=40)
