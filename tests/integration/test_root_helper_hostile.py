"""What a captured Agent can say to the root helper: all of it is refused, and nothing changes."""

import asyncio
import contextlib
import datetime
import json
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator

import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from root_helper import refusals
from tests.support import held_sets, root_helpers, tiny_releases
from wire_protocol import helper_protocol as helper
from wire_protocol import orders, strict_json

Code = refusals.Code
NEWER = tiny_releases.make("1.2.0")
HOUR = datetime.timedelta(hours=1)
NOBODY = 65_534
ASKS = """
import socket, sys
asking = socket.socket(socket.AF_UNIX)
asking.connect(sys.argv[1])
print(asking.recv(4096).decode())
"""


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> root_helpers.Machine:
    return root_helpers.installed(tmp_path, "1.0.0", "1.1.0")


@contextlib.asynccontextmanager
async def served(
    machine: root_helpers.Machine, *, peers: list[int] | None = None
) -> AsyncIterator[None]:
    with root_helpers.listening(machine) as listener:
        running = asyncio.create_task(root_helpers.serving(machine, peers=peers).run(listener))
        yield
        async with asyncio.timeout(root_helpers.SECONDS):
            await running


async def refusal(machine: root_helpers.Machine, line: bytes, *files: int) -> str:
    """The code of the refusal; nothing on the machine has changed by it."""
    before = (machine.current, machine.restarts)
    said = await asyncio.to_thread(root_helpers.ask, machine, line, *files)
    with pytest.raises(helper.Refused) as refused:
        helper.read_answer(said)
    assert (machine.current, machine.restarts) == before
    return refused.value.code


@contextlib.contextmanager
def passing(data: bytes) -> Iterator[int]:
    descriptor = tiny_releases.open_memory(data)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def update_refused(
    machine: root_helpers.Machine, signed: orders.SignedOrder, *, data: bytes = NEWER.data
) -> str:
    with passing(data) as file:
        return await refusal(machine, helper.write_order(helper.Verb.UPDATE, signed), file)


async def test_another_account_than_the_agents_is_refused(machine: root_helpers.Machine) -> None:
    async with served(machine, peers=[os.geteuid() + 1]):
        line = helper.write_question(helper.Verb.STATUS)
        assert await refusal(machine, line) == Code.NOT_PERMITTED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
async def test_an_account_that_gets_at_the_socket_is_refused_by_the_kernels_word() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="enlist-test-") as name:
        folder = pathlib.Path(name)
        machine = root_helpers.installed(folder, "1.1.0")
        async with served(machine):
            for path, mode in ((folder, 0o755), (machine.socket, 0o666)):
                os.chmod(path, mode)  # noqa: PTH101 - microseconds, in a coroutine
            done = await asyncio.to_thread(
                subprocess.run,
                ["/usr/bin/python3", "-c", ASKS, str(machine.socket)],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                capture_output=True,
                timeout=20,
                check=True,
            )
    assert json.loads(done.stdout)["error"] == Code.NOT_PERMITTED


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{}\n",
        b'{"verb":"run"}\n',
        b'{"verb":["update"]}\n',
        b'{"verb":"update"}\n',
        b'{"verb":"update","order":"e30=","signatures":"none"}\n',
        b'{"verb":"update","order":"***","signatures":[]}\n',
        b"\xff\xfe\n",
        b"[" * 60_000 + b"\n",
        b'{"verb":"mesh-up","address":"10.0.0.1"}\n',
        b'{"verb":"trust"}\n',
    ],
    ids=lambda line: repr(line[:40]),
)
async def test_a_line_that_is_no_request_is_refused(
    machine: root_helpers.Machine, line: bytes
) -> None:
    async with served(machine):
        assert await refusal(machine, line) == Code.MALFORMED


async def test_a_line_without_end_is_read_to_its_limit_and_no_further(
    machine: root_helpers.Machine,
) -> None:
    async with served(machine):
        assert await refusal(machine, b"x" * (helper.MAX_LINE_BYTES + 1)) == Code.MALFORMED


async def test_whoever_says_nothing_is_let_go_and_hinders_nobody(
    machine: root_helpers.Machine,
) -> None:
    async with served(machine):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
            silent.connect(str(machine.socket))
            line = helper.write_question(helper.Verb.STATUS)
            answer = await asyncio.to_thread(root_helpers.ask, machine, line)
            assert helper.read_answer(answer).text("state") == "status"
            silent.settimeout(root_helpers.SECONDS)
            said = await asyncio.to_thread(silent.recv, 4096)
            assert json.loads(said)["error"] == Code.MALFORMED


async def test_more_files_than_one_are_refused_and_closed(machine: root_helpers.Machine) -> None:
    before = psutil.Process().num_fds()
    async with served(machine):
        with passing(b"one") as one:
            line = helper.write_question(helper.Verb.STATUS)
            assert await refusal(machine, line, one, one, one) == Code.MALFORMED
    assert psutil.Process().num_fds() <= before + 1


async def test_an_update_without_its_archive_is_refused(machine: root_helpers.Machine) -> None:
    async with served(machine):
        signed = root_helpers.update(NEWER, sequence=1)
        line = helper.write_order(helper.Verb.UPDATE, signed)
        assert await refusal(machine, line) == Code.NO_ARCHIVE


STRANGER = held_sets.Key(days=365 * 30)
ORDERS: dict[str, tuple[Callable[[], orders.SignedOrder], str]] = {
    "signed by a key nobody here knows": (
        lambda: root_helpers.update(NEWER, sequence=1, key=STRANGER),
        Code.NOT_SIGNED,
    ),
    "of another node": (
        lambda: root_helpers.update(NEWER, sequence=1, node_id="web-2"),
        Code.REFUSED,
    ),
    "of another Platform": (
        lambda: root_helpers.update(NEWER, sequence=1, platform_id="plt_2"),
        Code.REFUSED,
    ),
    "that has expired": (
        lambda: root_helpers.update(NEWER, sequence=1, expires_in=-HOUR),
        Code.REFUSED,
    ),
    "of an epoch before the trust set's": (
        lambda: root_helpers.update(NEWER, sequence=9, epoch=0),
        Code.REFUSED,
    ),
    "of another kind": (
        lambda: root_helpers.order("renew", sequence=1),
        Code.REFUSED,
    ),
    "with a field nobody knows": (
        lambda: root_helpers.order(
            "update", sequence=1, content={**NEWER.update.to_content(), "run": "sh"}
        ),
        Code.MALFORMED,
    ),
    "for an archive of another hash": (
        lambda: root_helpers.order(
            "update",
            sequence=1,
            content={**NEWER.update.to_content(), "archive_sha256": "0" * 64},
        ),
        Code.BAD_ARCHIVE,
    ),
    "for another release": (
        lambda: root_helpers.order(
            "update",
            sequence=1,
            content={**NEWER.update.to_content(), "release": "1.2.0-0123456789ab"},
        ),
        Code.BAD_ARCHIVE,
    ),
}


@pytest.mark.parametrize("name", sorted(ORDERS))
async def test_an_order_is_refused(machine: root_helpers.Machine, name: str) -> None:
    make, code = ORDERS[name]
    async with served(machine):
        assert await update_refused(machine, make()) == code


async def test_an_order_changed_by_one_byte_is_not_signed(machine: root_helpers.Machine) -> None:
    good = root_helpers.update(NEWER, sequence=1)
    changed = orders.SignedOrder(
        content=good.content.replace(b'"sequence":1', b'"sequence":2'), signatures=good.signatures
    )
    async with served(machine):
        assert await update_refused(machine, changed) == Code.NOT_SIGNED


async def test_an_order_is_carried_out_once_and_refused_when_it_is_replayed(
    machine: root_helpers.Machine,
) -> None:
    signed = root_helpers.update(NEWER, sequence=5)
    async with served(machine):
        with passing(NEWER.data) as file:
            await asyncio.to_thread(root_helpers.hand, machine, helper.Verb.UPDATE, signed, file)
    async with served(machine):
        assert await update_refused(machine, signed) == Code.REFUSED
        earlier = root_helpers.order("roll-back", sequence=4)
        line = helper.write_order(helper.Verb.ROLL_BACK, earlier)
        assert await refusal(machine, line) == Code.REFUSED


async def test_a_roll_back_order_does_not_update_and_an_update_never_goes_back(
    machine: root_helpers.Machine,
) -> None:
    older = tiny_releases.make("1.0.9")
    async with served(machine):
        back = root_helpers.order("roll-back", sequence=1)
        assert await update_refused(machine, back) == Code.REFUSED
        down = root_helpers.update(older, sequence=2)
        assert await update_refused(machine, down, data=older.data) == Code.OLDER


ARCHIVES: dict[str, Callable[[], tiny_releases.Tiny]] = {
    "signed by another release key": lambda: tiny_releases.make(
        "1.2.0", signed_by=ed25519.Ed25519PrivateKey.generate()
    ),
    "of the Platform's role": lambda: tiny_releases.make("1.2.0", role="platform"),
    "that says another version than it is": lambda: tiny_releases.make("1.2.0", says="9.9.9"),
    "whose program does not start": lambda: tiny_releases.make("1.2.0", code=1),
}


@pytest.mark.parametrize("name", sorted(ARCHIVES))
async def test_an_archive_is_refused(machine: root_helpers.Machine, name: str) -> None:
    tiny = ARCHIVES[name]()
    async with served(machine):
        signed = root_helpers.update(tiny, sequence=1)
        code = await update_refused(machine, signed, data=tiny.data)
    assert code in (Code.BAD_ARCHIVE, Code.FAILED)


async def test_an_archive_cut_short_or_grown_is_refused(machine: root_helpers.Machine) -> None:
    signed = root_helpers.update(NEWER, sequence=1)
    async with served(machine):
        for data in (NEWER.data[:-1], NEWER.data + b"x", b""):
            assert await update_refused(machine, signed, data=data) == Code.BAD_ARCHIVE


async def test_what_is_no_plain_file_is_refused_and_never_waited_for(
    machine: root_helpers.Machine, tmp_path: pathlib.Path
) -> None:
    signed = root_helpers.update(NEWER, sequence=1)
    line = helper.write_order(helper.Verb.UPDATE, signed)
    reading, writing = os.pipe()
    folder = os.open(tmp_path, os.O_RDONLY)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "gone")
    path_only = os.open(link, os.O_PATH | os.O_NOFOLLOW)
    try:
        async with served(machine):
            for descriptor in (reading, folder, path_only):
                assert await refusal(machine, line, descriptor) in (Code.NO_ARCHIVE, Code.FAILED)
    finally:
        for descriptor in (reading, writing, folder, path_only):
            os.close(descriptor)


async def test_a_file_that_is_changed_while_it_is_checked_changes_nothing_that_is_run(
    machine: root_helpers.Machine,
) -> None:
    """The copy is checked, not the file: whatever comes later, the release is the signed one."""
    signed = root_helpers.update(NEWER, sequence=1)
    async with served(machine):
        with passing(NEWER.data) as file:
            line = helper.write_order(helper.Verb.UPDATE, signed)

            def ask_and_overwrite() -> None:
                with root_helpers.asked(machine, line, file) as said:
                    os.pwrite(file, b"\0" * len(NEWER.data), 0)
                    assert helper.parse_staged(said).release == NEWER.release.id

            await asyncio.to_thread(ask_and_overwrite)
    assert machine.current == NEWER.release.id


async def test_a_helper_that_was_never_told_whom_to_trust_does_nothing(
    tmp_path: pathlib.Path,
) -> None:
    machine = root_helpers.installed(tmp_path, "1.1.0", seeded=False)
    async with served(machine):
        signed = root_helpers.update(NEWER, sequence=1)
        assert await update_refused(machine, signed) == Code.NO_TRUST
        line = helper.write_question(helper.Verb.MESH_DOWN)
        assert await refusal(machine, line) == Code.NO_TRUST


async def test_a_trust_set_that_no_held_key_signed_is_refused_and_the_held_one_stays(
    machine: root_helpers.Machine,
) -> None:
    before = machine.places.trust.read_bytes()
    offered = held_sets.held(STRANGER, serial=2)
    answer = strict_json.write({**offered.signed.to_wire(), "chain": []})
    async with served(machine):
        with passing(answer) as file:
            line = helper.write_question(helper.Verb.TRUST)
            assert await refusal(machine, line, file) == Code.NOT_SIGNED
    assert machine.places.trust.read_bytes() == before


async def test_while_an_installation_is_at_work_no_order_is_taken(
    machine: root_helpers.Machine,
) -> None:
    from installer import install  # noqa: PLC0415 - for this alone

    async with served(machine):
        with install.one_at_a_time(machine.places.layout):
            signed = root_helpers.update(NEWER, sequence=1)
            assert await update_refused(machine, signed) == Code.BUSY


async def test_a_damaged_file_of_the_last_order_stops_orders_and_nothing_else(
    machine: root_helpers.Machine,
) -> None:
    machine.places.orders.write_bytes(b"{")
    machine.places.orders.chmod(0o600)
    async with served(machine):
        signed = root_helpers.update(NEWER, sequence=1)
        assert await update_refused(machine, signed) == Code.FAILED
        line = helper.write_question(helper.Verb.STATUS)
        answer = await asyncio.to_thread(root_helpers.ask, machine, line)
        assert helper.read_answer(answer).text("state") == "status"


def test_the_kernel_says_who_asks() -> None:
    assert struct.calcsize("3i") == 12, "struct ucred of linux/socket.h"
