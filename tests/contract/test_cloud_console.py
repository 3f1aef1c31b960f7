"""A machine's console through the engine, at Google's fake, which has one; both stores."""

import pathlib

import pytest

from platform_server.cloud import console, requests
from platform_server.store import contract
from tests.support import machine_lives
from tests.support.clouds import gcp_bench

MARK = "enlist-first-boot: the Platform cannot be reached\n"


async def test_a_console_is_read_on_record_bounded_and_made_harmless(
    store: contract.Store, tmp_path: pathlib.Path
) -> None:
    with gcp_bench.GcpBench() as bench:
        life = await machine_lives.build(store, folder=tmp_path, bench=bench)
        made = await life.ordered()
        with pytest.raises(requests.WrongState, match="not there"):
            await console.read(life.clouds, machine=made.machine, actor="person:anna")
        await life.guest(made)
        machine = await life.machine(made)
        there = bench.cloud.held[machine.provider_ref or ""]
        there.console = "x" * 200_000 + f"\x1b[2J\r\n{MARK}"
        shown = await console.read(life.clouds, machine=machine, actor="person:anna")
        assert shown is not None
        assert len(shown) <= console.MOST_CHARACTERS
        assert shown.endswith(f"x\n{MARK}")
        assert "\x1b" not in shown
        said = await store.read(
            lambda tx: tx.fetch_all(
                "SELECT actor FROM action_log WHERE details LIKE ? LIMIT 9", "%read console%"
            )
        )
        assert "person:anna" in [row["actor"] for row in said]
