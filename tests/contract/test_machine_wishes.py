"""What is wished of an ordered machine reaches its provider and its node; both stores."""

import dataclasses
import json
import pathlib
import random

import yaml

from platform_server.cloud import attempts, create
from platform_server.nodes import records
from platform_server.operations import reconciler
from platform_server.store import contract
from provisioning.first_boot import rendering
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


async def test_b40_an_operators_snippet_is_in_the_first_boot_that_the_provider_is_given(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    engine = await machine_orders.build(store, folder=tmp_path)
    engine.means = dataclasses.replace(
        engine.means,
        minting=dataclasses.replace(
            engine.means.minting,
            render=lambda ticket: (
                rendering.HEADER + json.dumps({"bootcmd": [json.dumps(dict(ticket))]})
            ),
        ),
    )
    engine.reconciler = reconciler.Reconciler(
        store,
        known=[create.CreateMachine(engine.means)],
        clock=engine.platform.clock,
        chance=random.Random(4),
        tries=machine_orders.TRIES,
    )
    made = await engine.order(first_boot="#cloud-config\npackages: [jq]\nbootcmd: [date]\n")
    await engine.until(made, "booting")
    given = yaml.safe_load(engine.cloud.ever()[-1]["user_data"])
    assert given["packages"] == ["jq"]
    assert (len(given["bootcmd"]), given["bootcmd"][-1]) == (2, "date")
