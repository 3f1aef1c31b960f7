"""What nodes say of orders that nobody knows, over either store."""

import logging
import pathlib

import pytest

from platform_server.store import contract
from tests.support import ordering
from wire_protocol import ids, orders

WEB = ids.NodeId("web-1")


async def test_results_of_unknown_orders_cost_a_look_and_neither_a_write_nor_a_line(
    store: contract.Store,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = ordering.Engine((await ordering.place(store, folder=tmp_path)).platform)

    async def never(_work: object) -> None:
        raise AssertionError("It was written.")

    monkeypatch.setattr(store, "transact", never)
    with caplog.at_level(logging.INFO):
        for number in range(20):
            result = orders.Result(epoch=1, sequence=number + 1, is_done=True)
            await engine.deliverer.take_result(WEB, result.to_bytes())
    assert caplog.records == []
