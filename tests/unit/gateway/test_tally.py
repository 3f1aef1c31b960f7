"""So many a minute of one node."""

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
