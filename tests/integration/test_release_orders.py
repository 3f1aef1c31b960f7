"""Orders to run another release, as the Agent hands them to a root helper on a real socket."""

import asyncio
import contextlib
import datetime
import hashlib
import os
import pathlib
import random
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from runtime_kit import clock as clock_kit
from tests.support import archive_server, held_sets, waits
from wire_protocol import helper_protocol as helper
from wire_protocol import ids, orders, signing, statements
from worker_agent.app import releasing
from worker_agent.orders import archive, journal, root_helper, work
from worker_agent.settings import failures, paths

SHA256 = hashlib.sha256(archive_server.CONTENT).hexdigest()
NODE = ids.parse_node_id("web-1")
NOW = held_sets.START + 2 * held_sets.DAY
KEY = held_sets.Key()
Way = archive_server.Way


class Trusted:
    """The machine's trust set."""

    held = held_sets.held(KEY)

    def unknown_key(self) -> None:
        raise AssertionError


class Helper:
    """What a root helper was handed, and how it answers; closed is when the Agent let go."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.lines: list[bytes] = []
        self.archives: list[bytes] = []
        self.closed = asyncio.Event()


@contextlib.asynccontextmanager
async def helping(path: pathlib.Path, answer: bytes) -> AsyncIterator[Helper]:
    """A root helper for the length of an `async with`."""
    made = Helper(answer)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)
    listener.settimeout(20)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(20)
            line, descriptors, _, _ = socket.recv_fds(connection, helper.MAX_LINE_BYTES, 4)
            made.lines.append(line)
            for one in descriptors:
                made.archives.append(os.pread(one, 2 * len(archive_server.CONTENT), 0))
                os.close(one)
            connection.sendall(made.answer)
            if made.answer:
                connection.recv(1)

    async def run() -> None:
        await asyncio.to_thread(serve)
        made.closed.set()

    serving = asyncio.create_task(run())
    try:
        yield made
    finally:
        listener.close()
        await serving


def signed(kind: str, content: Mapping[str, Any], *, sequence: int = 1) -> orders.SignedOrder:
    """An order of the Platform's."""
    held = Trusted.held.statement
    raw = orders.Order(
        platform_id=held.platform_id,
        epoch=held.epoch,
        sequence=sequence,
        node_id=NODE,
        agent_id=ids.agent_id_of(NODE),
        expires_at=NOW + datetime.timedelta(hours=1),
        kind=kind,
        content=content,
    ).to_bytes()
    signature = statements.Signature(
        key_id=KEY.public.key_id, signature=signing.sign(KEY.private, raw, context=orders.CONTEXT)
    )
    return orders.SignedOrder(content=raw, signatures=(signature,))


def working(where: paths.Paths, path: pathlib.Path) -> work.Work:
    """The Agent's part, over that socket."""
    clock = clock_kit.ManualClock(NOW)
    doing = releasing.Releasing(
        where,
        using=root_helper.RootHelper(path, answer_seconds=20),
        around=archive.Around(clock=clock, chance=random.Random(1), environment={}),
    )
    return work.Work(
        where,
        node_id=NODE,
        kinds={},
        handed_on=doing.kinds(),
        trusted=Trusted(),
        clock=clock,
    )


async def ended(where: paths.Paths, made: work.Work, order: orders.SignedOrder) -> journal.Entry:
    """Has the Agent carry it out; what stands on the disk then."""
    running = asyncio.create_task(made.run())
    try:
        await made.take(order.to_bytes())
        found: list[journal.Entry] = []

        def look() -> bool:
            found[:] = [one for one in journal.read(where.orders).entries if one.result]
            return bool(found)

        await waits.until(look)
        return found[0]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_helper_gets_the_very_order_and_the_archive_and_is_let_go_after_the_result(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "helper.sock"
    async with (
        archive_server.serving(tmp_path, Way.WHOLE) as server,
        helping(path, helper.write_staged(archive_server.RELEASE)) as helped,
    ):
        where = archive_server.joined(tmp_path, server.issued)
        wanted = archive_server.update(server, sha256=SHA256)
        order = signed("update", wanted.to_content())
        made = working(where, path)
        running = asyncio.create_task(made.run())
        assert await made.take(order.to_bytes()) == b""
        async with asyncio.timeout(30):
            await helped.closed.wait()
        (entry,) = journal.read(where.orders).entries  # on the disk once the helper was let go
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert (entry.stage, entry.signed) == (journal.Stage.DONE, order)
    assert entry.detail.startswith(f"staged: {archive_server.RELEASE}")
    verb, fields = helper.parse_verb(helped.lines[0])
    assert (verb, helper.parse_order(fields)) == (helper.Verb.UPDATE, order)
    assert helped.archives == [archive_server.CONTENT]
    assert not where.staged.exists()


async def test_a_roll_back_is_handed_on_without_a_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "helper.sock"
    where = archive_server.joined(tmp_path)
    async with helping(path, helper.write_staged("0.1.0-aaaaaaaaaaaa")) as helped:
        entry = await ended(where, working(where, path), signed("roll-back", {}))
        async with asyncio.timeout(30):
            await helped.closed.wait()
    assert entry.stage is journal.Stage.DONE
    assert helper.parse_verb(helped.lines[0])[0] is helper.Verb.ROLL_BACK
    assert helped.archives == []


ANSWERS = {
    "the helper refuses": (
        helper.write_refusal("not-signed", "No key that is held signed it."),
        "The root helper refuses: No key that is held signed it.",
    ),
    "the helper says nothing": (b"", "The root helper cannot be asked"),
    "the helper says something else": (b'{"state":"done"}\n', "cannot be understood"),
}


@pytest.mark.parametrize("row", ANSWERS.values(), ids=ANSWERS)
async def test_what_the_helper_does_not_do_has_failed_with_its_words_and_nothing_is_left(
    row: tuple[bytes, str], tmp_path: pathlib.Path
) -> None:
    answer, sentence = row
    path = tmp_path / "helper.sock"
    async with (
        archive_server.serving(tmp_path, Way.WHOLE) as server,
        helping(path, answer),
    ):
        where = archive_server.joined(tmp_path, server.issued)
        order = signed("update", archive_server.update(server, sha256=SHA256).to_content())
        entry = await ended(where, working(where, path), order)
    assert entry.stage is journal.Stage.FAILED
    assert sentence in entry.detail
    assert not where.staged.exists()


async def test_without_a_helper_nothing_is_fetched(tmp_path: pathlib.Path) -> None:
    async with archive_server.serving(tmp_path, Way.WHOLE) as server:
        where = archive_server.joined(tmp_path, server.issued)
        order = signed("update", archive_server.update(server, sha256=SHA256).to_content())
        entry = await ended(where, working(where, tmp_path / "none.sock"), order)
    assert entry.stage is journal.Stage.FAILED
    assert "has no root helper" in entry.detail
    assert server.heads == []


@pytest.mark.parametrize(
    ("kind", "content"), [("update", {"version": "0.2.0"}), ("roll-back", {"to": "0.1.0"})]
)
async def test_an_order_out_of_shape_is_not_handed_on(
    kind: str, content: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    where = archive_server.joined(tmp_path)
    entry = await ended(where, working(where, tmp_path / "none.sock"), signed(kind, content))
    assert entry.stage is journal.Stage.FAILED
    assert "cannot be carried out" in entry.detail


async def test_an_order_of_an_older_agents_journal_is_not_handed_on_unsigned(
    tmp_path: pathlib.Path,
) -> None:
    where = archive_server.joined(tmp_path)
    entry = journal.Entry(
        number=(1, 1), kind="roll-back", content={}, expires_at=NOW + held_sets.DAY
    )
    journal.write(where.orders, journal.Journal(last=(1, 1), entries=(entry,)))
    made = working(where, tmp_path / "none.sock")
    carry = made._handed_on["roll-back"]
    with pytest.raises(failures.Refused, match="signature was not kept"):
        await carry(journal.read(where.orders).entries[0])


def test_what_an_agent_left_staged_goes_at_its_start(tmp_path: pathlib.Path) -> None:
    where = archive_server.joined(tmp_path)
    where.staged.mkdir(mode=0o700)
    (where.staged / "x.tar").write_bytes(b"left")
    around = archive.Around(
        clock=clock_kit.ManualClock(NOW), chance=random.Random(1), environment={}
    )
    releasing.Releasing(where, using=root_helper.RootHelper(), around=around).tidy()
    assert not where.staged.exists()


def test_the_socket_is_the_machines_unless_the_environment_names_another() -> None:
    assert str(root_helper.of({})._path) == helper.SOCKET
    assert str(root_helper.of({root_helper.VARIABLE: "/x"})._path) == "/x"
