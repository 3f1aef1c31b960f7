"""The root helper over its real socket: what it does for an order of the Platform's."""

import asyncio
import contextlib
import json
import os
import pathlib
from collections.abc import AsyncIterator

import pytest

from root_helper import changing, refusals
from tests.support import root_helpers, tiny_releases
from wire_protocol import helper_protocol as helper
from wire_protocol import helper_state


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> root_helpers.Machine:
    return root_helpers.installed(tmp_path, "1.0.0", "1.1.0")


@contextlib.asynccontextmanager
async def served(machine: root_helpers.Machine) -> AsyncIterator[None]:
    """The helper runs; at the end of the block it has ended by itself, idle."""
    with root_helpers.listening(machine) as listener:
        running = asyncio.create_task(root_helpers.serving(machine).run(listener))
        yield
        async with asyncio.timeout(root_helpers.SECONDS):
            await running


async def update(
    machine: root_helpers.Machine, tiny: tiny_releases.Tiny, *, sequence: int
) -> helper.Staged:
    signed = root_helpers.update(tiny, sequence=sequence)
    with contextlib.closing(_Open(tiny.data)) as file:
        return await asyncio.to_thread(
            root_helpers.hand, machine, helper.Verb.UPDATE, signed, file.descriptor
        )


class _Open:
    def __init__(self, data: bytes) -> None:
        self.descriptor = tiny_releases.open_memory(data)

    def close(self) -> None:
        os.close(self.descriptor)


async def test_an_update_is_staged_then_runs_and_the_receipt_and_the_outcome_say_so(
    machine: root_helpers.Machine,
) -> None:
    tiny = tiny_releases.make("1.2.0")
    before = machine.current
    async with served(machine):
        assert (await update(machine, tiny, sequence=1)).release == tiny.release.id
    assert machine.current == tiny.release.id
    assert machine.restarts == [tiny.release.id]
    assert machine.outcome()["end"] == "changed"
    receipt = json.loads(machine.places.layout.receipt.read_text())
    assert (receipt["version"], receipt["release"]) == ("1.2.0", tiny.release.id)
    assert "enlist-agent.service" in receipt["units"]
    left = {path.name for path in machine.places.layout.releases.iterdir()}
    assert left == {before, tiny.release.id}, "the one before stays, older ones go"
    assert not machine.places.finisher.is_symlink()


async def test_a_release_that_does_not_come_up_is_gone_back_from(
    machine: root_helpers.Machine,
) -> None:
    tiny = tiny_releases.make("1.2.0")
    before = machine.current
    machine.breaks(tiny.release.id)
    async with served(machine):
        await update(machine, tiny, sequence=1)
    assert machine.current == before
    assert machine.restarts == [tiny.release.id, before]
    assert machine.outcome()["end"] == "went-back"
    assert "says why" in machine.outcome()["reason"]


async def test_what_the_agents_journal_says_is_printable_in_the_outcome_and_in_the_log(
    machine: root_helpers.Machine, caplog: pytest.LogCaptureFixture
) -> None:
    tiny = tiny_releases.make("1.2.0")
    machine.breaks(tiny.release.id)
    caplog.set_level("INFO")
    async with served(machine):
        await update(machine, tiny, sequence=1)
    assert "owned" in machine.outcome()["reason"]
    assert machine.outcome()["reason"].isprintable()
    assert all(record.getMessage().isprintable() for record in caplog.records)
    assert any("owned" in record.getMessage() for record in caplog.records)


async def test_a_roll_back_goes_to_the_release_before(machine: root_helpers.Machine) -> None:
    before = machine.current
    async with served(machine):
        signed = root_helpers.order("roll-back", sequence=1)
        staged = await asyncio.to_thread(root_helpers.hand, machine, helper.Verb.ROLL_BACK, signed)
        assert staged.release.startswith("1.0.0-")
    assert (machine.current or "").startswith("1.0.0-")
    assert machine.places.layout.previous.readlink().name == before


async def test_without_a_release_before_there_is_nothing_to_go_back_to(
    tmp_path: pathlib.Path,
) -> None:
    machine = root_helpers.installed(tmp_path, "1.0.0")
    async with served(machine):
        with pytest.raises(helper.Refused) as refused:
            await asyncio.to_thread(
                root_helpers.hand,
                machine,
                helper.Verb.ROLL_BACK,
                root_helpers.order("roll-back", sequence=1),
            )
    assert refused.value.code == refusals.Code.NOTHING_TO_GO_BACK_TO


async def test_the_release_changes_only_once_the_asker_has_closed(
    machine: root_helpers.Machine,
) -> None:
    tiny = tiny_releases.make("1.2.0")
    before = machine.current
    async with served(machine):
        signed = root_helpers.update(tiny, sequence=1)

        def ask_and_look() -> str | None:
            with contextlib.closing(_Open(tiny.data)) as file:
                line = helper.write_order(helper.Verb.UPDATE, signed)
                with root_helpers.asked(machine, line, file.descriptor) as said:
                    assert helper.parse_staged(said).release == tiny.release.id
                    return machine.current

        assert await asyncio.to_thread(ask_and_look) == before
    assert machine.current == tiny.release.id


async def test_status_tells_release_trust_and_outcome(machine: root_helpers.Machine) -> None:
    async with served(machine):
        line = helper.write_question(helper.Verb.STATUS)
        status = helper_state.parse_status(await asyncio.to_thread(root_helpers.ask, machine, line))
    assert (status.release, status.trust, status.outcome) == (machine.current, (1, 1), None)


async def test_an_asker_that_never_closes_holds_the_change_up_for_a_bounded_time(
    machine: root_helpers.Machine,
) -> None:
    tiny = tiny_releases.make("1.2.0")
    with root_helpers.listening(machine) as listener:
        limits = root_helpers.limits(close_seconds=0.2)
        running = asyncio.create_task(root_helpers.serving(machine, limits_=limits).run(listener))
        signed = root_helpers.update(tiny, sequence=1)
        with contextlib.ExitStack() as open_until_the_end:
            file = open_until_the_end.enter_context(contextlib.closing(_Open(tiny.data)))
            line = helper.write_order(helper.Verb.UPDATE, signed)
            await asyncio.to_thread(
                open_until_the_end.enter_context,
                root_helpers.asked(machine, line, file.descriptor),
            )
            async with asyncio.timeout(root_helpers.SECONDS):
                await running
            assert machine.current == tiny.release.id


async def test_a_helper_of_a_release_that_no_longer_runs_ends_and_leaves_the_next_request(
    machine: root_helpers.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = machine.places.layout.current.resolve()
    limits = root_helpers.limits(idle_seconds=60.0)
    with root_helpers.listening(machine) as listener:
        running = asyncio.create_task(root_helpers.serving(machine, limits_=limits).run(listener))
        line = helper.write_question(helper.Verb.STATUS)
        await asyncio.to_thread(root_helpers.ask, machine, line)
        monkeypatch.setattr(changing, "running_release", lambda _layout: own.with_name("former"))
        await asyncio.to_thread(root_helpers.ask, machine, line)
        async with asyncio.timeout(root_helpers.SECONDS):
            await running
