"""Which certificates a name finds, and nobody else's, however many nodes there are."""

import ssl
from collections.abc import Awaitable, Callable, Sequence

import pytest

from platform_server.enrollment import certificate
from platform_server.gateway import anchors, generation
from platform_server.store import contract
from tests.support import domain
from wire_protocol import ids, pins


class _NoStore:
    """Nothing is read here."""


def _known() -> anchors.Anchors:
    return anchors.Anchors(_NoStore())  # type: ignore[arg-type]


def _machine() -> tuple[str, pins.Pin, bytes]:
    pem = domain.new_certificate()
    return pem, certificate.read(pem).pin, ssl.PEM_cert_to_DER_cert(pem)


def _name(pin: pins.Pin) -> str:
    return f"{pin.removeprefix('sha256:')[:32]}.node.enlist.internal"


def _nodes(found: Sequence[anchors.Anchor]) -> list[str]:
    return [one.node_id for one in found]


def test_a_node_is_found_by_the_name_that_begins_with_its_pin() -> None:
    known = _known()
    pem, pin, der = _machine()
    known.put(ids.NodeId("web-1"), pin=pin, certificate_pem=pem)
    (found,) = known.of_server_name(_name(pin))
    assert (found.node_id, found.der, found.proof) == ("web-1", der, generation.Proof.PRESENT)
    assert known.of_server_name(_name(pin).upper()) != ()
    assert _nodes(known.of_leaf(der, pin=pin)) == ["web-1"]


def test_no_other_name_finds_anything() -> None:
    known = _known()
    pem, pin, _ = _machine()
    known.put(ids.NodeId("web-1"), pin=pin, certificate_pem=pem)
    prefix = _name(pin)[:32]
    for name in ("", ".", "node.enlist.internal", prefix[:31], prefix + "0", "g" * 32, pin):
        assert known.of_server_name(name) == ()


def test_another_certificate_of_the_same_key_is_not_the_nodes() -> None:
    known = _known()
    key = domain.new_key()
    pem, other = domain.certificate_of(key), domain.certificate_of(key, name="other")
    pin = certificate.read(pem).pin
    known.put(ids.NodeId("web-1"), pin=pin, certificate_pem=pem)
    assert known.of_leaf(ssl.PEM_cert_to_DER_cert(other), pin=pin) == []


def test_two_nodes_that_share_a_key_are_both_found_and_told_apart_by_hello() -> None:
    known = _known()
    pem, pin, der = _machine()
    for node_id in ("web-1", "web-2"):
        known.put(ids.NodeId(node_id), pin=pin, certificate_pem=pem)
    assert sorted(_nodes(known.of_leaf(der, pin=pin))) == ["web-1", "web-2"]


def test_what_replaces_a_node_leaves_nothing_of_the_former() -> None:
    known = _known()
    first, second = _machine(), _machine()
    known.put(ids.NodeId("web-1"), pin=first[1], certificate_pem=first[0])
    known.put(ids.NodeId("web-1"), pin=second[1], certificate_pem=second[0])
    assert known.of_server_name(_name(first[1])) == ()
    assert _nodes(known.of_server_name(_name(second[1]))) == ["web-1"]
    assert len(known) == 1


class _FaultyStore:
    """Gives pages of events, and fails at one read."""

    def __init__(self, *, fails_at: int) -> None:
        self._reads = 0
        self._fails_at = fails_at

    async def read(self, work: Callable[[object], Awaitable[object]]) -> object:
        self._reads += 1
        if self._reads == self._fails_at:
            raise contract.StoreAway("The store is away.")
        return await work(self)

    async def fetch_all(self, sql: str, *values: object) -> list[dict[str, object]]:
        if "FROM events" not in sql:
            return []
        after, most = values
        assert isinstance(after, int)
        assert isinstance(most, int)
        return [
            {"seq": seq, "kind": "node.removed", "subject": f"web-{seq % 3}"}
            for seq in range(after + 1, min(after + most, 700) + 1)
        ]


async def test_whose_key_may_count_no_more_is_told_though_the_store_fails_on_the_way() -> None:
    known = anchors.Anchors(_FaultyStore(fails_at=5))  # type: ignore[arg-type]
    with pytest.raises(contract.StoreError):
        await known.follow()
    assert known._seen == 500, "the first page was read"
    assert sorted(await known.follow()) == ["web-0", "web-1", "web-2"]
    assert await known.follow() == []


def test_a_thousand_nodes_are_a_thousand_entries_and_each_name_finds_one() -> None:
    known = _known()
    pem, _, _ = _machine()
    for number in range(1000):
        pin = pins.Pin(f"sha256:{number:064x}"[:7] + f"{number:032x}" + "0" * 32)
        known.put(ids.NodeId(f"web-{number}"), pin=pin, certificate_pem=pem)
    assert len(known) == 1000
    assert _nodes(known.of_server_name(f"{7:032x}.node.enlist.internal")) == ["web-7"]
