# SPDX-License-Identifier: BSD-2-Clause
"""The choice of the rail that carries the traffic, as the bonding driver's active-backup."""

from __future__ import annotations

import itertools

from ipoibu.proto.rail_policy import RailPolicy, RailState, Reach, is_outdone


def up(since_s: float = 0.0) -> RailState:
    return RailState(True, since_s)


def down(since_s: float = 0.0) -> RailState:
    return RailState(False, since_s)


def test_a_rail_notes_when_it_changed() -> None:
    rail = RailState()
    assert not rail.note(1.0, is_up=False)
    assert rail.note(2.0, is_up=True)
    assert not rail.note(3.0, is_up=True)
    assert (rail.is_up, rail.since_s) == (True, 2.0)
    assert rail.note(4.0, is_up=False)
    assert (rail.is_up, rail.since_s) == (False, 4.0)


def test_without_a_primary_the_active_rail_stays_until_it_fails() -> None:
    policy = RailPolicy()
    assert policy.choose(100.0, 1, [up(), up()]) == 1
    assert policy.choose(100.0, 1, [up(100.0), down(100.0)]) == 0
    assert policy.choose(100.0, 0, [down(), down(), up(100.0), up()]) == 2


def test_a_primary_that_comes_back_waits_for_the_delay() -> None:
    policy = RailPolicy(primary=0, updelay_s=5.0)
    assert policy.choose(104.9, 1, [up(100.0), up()]) == 1
    assert policy.choose(105.0, 1, [up(100.0), up()]) == 0
    assert policy.choose(200.0, 1, [down(100.0), up()]) == 1


def test_the_primary_does_not_wait_when_the_active_rail_fails() -> None:
    policy = RailPolicy(primary=2, updelay_s=60.0)
    assert policy.choose(100.0, 1, [up(), down(), up(100.0)]) == 2
    assert policy.choose(100.0, 1, [up(), down(), down()]) == 0


def test_the_choice_is_a_rail_that_is_up_if_there_is_one() -> None:
    """Over every state of three rails, active rail and primary."""
    for states in itertools.product((True, False), repeat=3):
        rails = [RailState(is_up, 0.0) for is_up in states]
        for active, primary in itertools.product(range(3), (None, 0, 1, 2)):
            chosen = RailPolicy(primary).choose(1.0, active, rails)
            assert states[chosen] is any(states)
            if not any(states):
                assert chosen == active
            if primary is not None and states[primary]:
                assert chosen == primary
            elif states[active]:
                assert chosen == active


def test_a_suspect_is_avoided_for_twice_as_long_each_time_until_somebody_answers() -> None:
    rail = up()
    for seconds in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0):
        rail.silent(100.0)
        assert not rail.is_good(100.0 + seconds - 0.001)
        assert rail.is_good(100.0 + seconds)
    rail.note_heard()
    rail.silent(200.0)
    assert rail.is_good(201.0)


def test_a_suspect_takes_over_where_no_other_rail_is_up() -> None:
    policy, suspect = RailPolicy(), up()
    suspect.silent(100.0)
    assert policy.choose(100.5, 0, [suspect, up()]) == 1
    assert policy.choose(100.5, 1, [suspect, down(100.5)]) == 0
    assert policy.choose(100.5, 0, [suspect, down()]) == 0


def test_a_rail_that_is_to_join_the_link_first_takes_over_where_no_other_is_good() -> None:
    policy, outside = RailPolicy(primary=0), up()
    outside.is_joining = True
    assert policy.choose(100.0, 1, [outside, up()]) == 1
    assert policy.choose(100.0, 1, [outside, down(), up()]) == 2
    assert policy.choose(100.0, 1, [outside, down()]) == 0
    refused = up()
    refused.silent(100.0)
    assert policy.choose(100.5, 1, [outside, refused]) == 0
    outside.silent(100.0)
    assert policy.choose(100.5, 1, [outside, refused]) == 1  # both are avoided
    outside.is_joining = False
    assert policy.choose(102.0, 1, [outside, refused]) == 0


def test_a_primary_that_was_suspect_waits_for_the_delay() -> None:
    policy, suspect = RailPolicy(primary=0, updelay_s=5.0), up()
    suspect.silent(100.0)
    assert policy.choose(105.9, 1, [suspect, up()]) == 1
    assert policy.choose(106.0, 1, [suspect, up()]) == 0


def test_a_rail_that_reaches_fewer_hosts_for_a_second_is_not_active() -> None:
    policy, poor = RailPolicy(primary=0), up()
    poor.compare(100.0, is_poor=True)
    poor.compare(100.5, is_poor=True)
    assert policy.choose(100.9, 0, [poor, up()]) == 0
    assert policy.choose(101.0, 0, [poor, up()]) == 1
    assert policy.choose(101.0, 1, [poor, down()]) == 0  # better than none
    poor.compare(102.0, is_poor=False)
    assert policy.choose(102.0, 1, [poor, up()]) == 0


def test_each_time_a_rail_is_poor_it_stays_active_for_twice_as_long() -> None:
    """A host that comes and goes on a wire does not move the others each time."""
    rail, now = up(), 100.0
    for seconds in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0):
        rail.compare(now, is_poor=True)
        assert rail.is_best(now + seconds - 0.001)
        assert not rail.is_best(now + seconds)
        now += seconds
        rail.compare(now, is_poor=False)
        assert rail.is_best(now)
    rail.compare(now + 63.0, is_poor=True)
    assert rail.is_best(now + 66.0)
    rail.compare(now + 66.0, is_poor=False)
    rail.compare(now + 130.0, is_poor=True)
    assert not rail.is_best(now + 131.0)


BOTH, FIRST, SECOND = 3, 1, 2


def test_a_rail_is_outdone_by_one_that_reaches_all_its_hosts_and_more() -> None:
    everywhere, lost_first = Reach(BOTH, BOTH), Reach(SECOND, BOTH)
    for hosts in ({lost_first}, {everywhere, lost_first}, {everywhere, lost_first, Reach(0, BOTH)}):
        assert is_outdone(0, (0, 1), hosts)
        assert not is_outdone(1, (0, 1), hosts)
    assert not is_outdone(0, (0,), {lost_first})  # the other rail is not good
    assert not is_outdone(0, (0, 1), set())


def test_a_host_that_has_answered_on_one_rail_only_has_no_vote() -> None:
    stranger = Reach(SECOND, SECOND)
    for hosts in ({stranger}, {stranger, Reach(BOTH, BOTH)}, {stranger, Reach(0, BOTH)}):
        assert not is_outdone(0, (0, 1), hosts)
    assert is_outdone(0, (0, 1, 2), {stranger, Reach(0b100, 0b101)})  # by the third rail


def test_a_rail_makes_no_way_for_one_that_has_lost_a_host() -> None:
    hosts = {Reach(SECOND, BOTH), Reach(FIRST, BOTH)}
    assert not is_outdone(0, (0, 1), hosts)
    assert not is_outdone(1, (0, 1), hosts)


def test_the_votes_of_every_two_hosts_over_two_rails() -> None:
    """Two rails never outdo each other, and none outdoes another without reaching more voters."""
    possible = [Reach(usable, reached) for reached in range(4) for usable in range(4)]
    possible = [host for host in possible if host.usable & ~host.reached == 0]
    for hosts in itertools.product(possible, repeat=2):
        poor = [is_outdone(rail, (0, 1), hosts) for rail in (0, 1)]
        assert not all(poor)
        votes = [host.usable for host in hosts if host.reached == BOTH]
        for rail, other in ((0, 1), (1, 0)):
            lost = any(usable == 1 << rail for usable in votes)
            won = any(usable == 1 << other for usable in votes)
            assert poor[rail] is (won and not lost)
