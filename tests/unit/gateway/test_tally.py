"""So many a minute of one node, and once in a while."""

from platform_server.gateway import tally
from wire_protocol import ids

WEB, DB = ids.NodeId("web-1"), ids.NodeId("db-1")


def test_each_node_has_its_own_count_and_the_minute_forgets_it() -> None:
    counts = tally.Tally(most=2)
    assert [counts.take(WEB, now=60.0 + n) for n in range(3)] == [True, True, False]
    assert counts.take(DB, now=63.0)
    assert not counts.take(WEB, now=119.9)
    assert counts.take(WEB, now=120.0)


def test_what_was_counted_is_no_longer_than_a_minute_in_memory() -> None:
    counts = tally.Tally(most=1)
    for number in range(500):
        counts.take(ids.NodeId(f"web-{number}"), now=1.0)
    counts.take(WEB, now=61.0)
    assert len(counts._taken) == 1


def test_what_is_told_seldom_is_told_once_a_node_and_span() -> None:
    told = tally.Seldom(seconds=3600.0)
    assert [told.take(WEB, now=now) for now in (0.0, 1.0, 3599.0)] == [True, False, False]
    assert told.take(DB, now=3599.0)
    assert [told.take(WEB, now=now) for now in (3600.0, 7199.0)] == [True, False]


def test_what_is_told_seldom_of_very_many_nodes_is_bounded_in_memory() -> None:
    told = tally.Seldom(seconds=3600.0, most_nodes=100)
    taken = [told.take(ids.NodeId(f"web-{number}"), now=1.0) for number in range(500)]
    assert taken.count(True) == len(told._last) == 100
    assert told.take(WEB, now=3601.0)
    assert len(told._last) == 1
