"""What is wished of an ordered machine reaches its provider and its node; both stores."""

import pathlib

from platform_server.cloud import attempts
from platform_server.nodes import records
from platform_server.store import contract
from tests.support import machine_orders
from wire_protocol import ids


async def test_disk_addresses_and_labels_reach_the_provider_and_the_node(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    made = await engine.order(
        disk_gigabytes=40, public_ipv4=False, public_ipv6=False, labels={"site": "north"}
    )
    await engine.to_active(made)
    last = await store.read(
        lambda tx: attempts.find_last(tx, operation_id=made.operation.operation_id)
    )
    assert last is not None
    request = last.request
    assert (request.disk_gigabytes, request.public_ipv4, request.public_ipv6) == (40, False, False)
    node = await store.read(lambda tx: records.find(tx, node_id=ids.parse_node_id("web-1")))
    assert node is not None
    assert node.labels == {"site": "north"}


async def test_what_is_not_wished_is_as_the_provider_has_it(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    made = await engine.order()
    await engine.until(made, "booting")
    last = await store.read(
        lambda tx: attempts.find_last(tx, operation_id=made.operation.operation_id)
    )
    assert last is not None
    request = last.request
    assert (request.disk_gigabytes, request.public_ipv4, request.public_ipv6) == (None, True, True)
