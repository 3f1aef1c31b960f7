"""The root helper for local machines: whom it serves, and what a captured account gains."""

import asyncio
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from provisioning import contract, naming
from provisioning.local import disk, hands, host, keeper, machines, root_service
from runtime_kit import clock as clock_kit
from tests.support import deep_trees
from tests.support.clouds import local_bench

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
OWNER = contract.Owner(
    installation="plt_1", infra="default", operation="op_1", node="demo", attempt=1
)
WISH = machines.Wish(
    kind=machines.Kind.NSPAWN,
    owner=OWNER,
    size="small",
    image="debian-12",
    network="10.99.0.0/24",
    first_boot="#cloud-config\n{}\n",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A helper that serves, and its folders."""

    path: pathlib.Path
    places: host.Places


@contextlib.asynccontextmanager
async def serving(
    folder: pathlib.Path, *, peers: frozenset[int] | None = None
) -> AsyncIterator[Served]:
    """A helper on a socket of the test's own."""
    places = host.Places(folder=folder / "machines", images=folder / "images")
    here = host.Host(places, launcher=local_bench.Keepers(), network=local_bench.NoNetwork())
    path = folder / "helper.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        service = root_service.Service(
            here,
            clock=clock_kit.SystemClock(),
            peers=peers or frozenset({os.getuid()}),
            read_seconds=1.0,
        )
        running = asyncio.create_task(service.run(listener))
        try:
            yield Served(path=path, places=places)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def asked(path: pathlib.Path, line: bytes) -> dict[str, Any]:
    """What it answers to these bytes."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(line)
        await writer.drain()
        found = json.loads(await reader.readline())
    finally:
        writer.close()
        await writer.wait_closed()
    assert isinstance(found, dict)
    return found


async def test_the_platform_makes_sees_restarts_and_removes_a_machine_through_it(
    tmp_path: pathlib.Path,
) -> None:
    async with serving(tmp_path) as served:
        helper = hands.Helper(served.path)
        made = await helper.create(WISH, now=NOW)
        assert made.machine.name == naming.name_of(OWNER)
        assert await helper.create(WISH, now=NOW) == made
        assert await helper.all() == [made]
        assert await helper.reboot(made.machine.name)
        (served.places.folder / made.machine.name / keeper.CONSOLE).write_text("login:")
        assert await helper.console(made.machine.name) == "login:"
        assert await helper.delete(made.machine.name)
        assert not await helper.delete(made.machine.name)
        assert await helper.all() == []


async def test_another_account_is_told_nothing(tmp_path: pathlib.Path) -> None:
    async with serving(tmp_path, peers=frozenset({os.getuid() + 1})) as served:
        with pytest.raises(hands.Refused) as refused:
            await hands.Helper(served.path).all()
        assert refused.value.code == "not-permitted"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"\n", "malformed"),
        (b"[]\n", "malformed"),
        (b"[" * 60_000 + b"\n", "malformed"),
        (b'{"verb": "machine-enter", "name": "demo-0123456789"}\n', "malformed"),
        (b'{"verb": "machine-delete"}\n', "malformed"),
        (b'{"verb": "machine-delete", "name": "../../../etc"}\n', "refused"),
        (b'{"verb": "machine-delete", "name": ".lock"}\n', "refused"),
        (b'{"verb": "machine-console", "name": "/etc/shadow"}\n', "refused"),
        (b'{"verb": "machine-create"}\n', "refused"),
        (b"x" * 70_000 + b"\n", "malformed"),
    ],
    ids=[
        "nothing", "a list", "deep", "another verb", "no name", "another folder", "the lock",
        "a file of root's", "no order", "too long",
    ],
)  # fmt: skip
async def test_what_is_not_on_its_list_is_refused(
    tmp_path: pathlib.Path, line: bytes, code: str
) -> None:
    async with serving(tmp_path) as served:
        assert (await asked(served.path, line))["error"] == code
        assert await hands.Helper(served.path).all() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"network": "192.0.2.0/24"},
        {"image": "../../../srv/evil"},
        {"size": "all"},
        {"size": []},
        {"first_boot": ["#cloud-config"]},
        {"directory": "/etc", "size": "none"},
        {"owner": {"installation": "i", "infra": "d", "operation": "o", "node": "../x"}},
    ],
    ids=[
        "a public network", "another image", "another size", "a list as size",
        "a list as first-boot data", "a folder", "a crooked owner",
    ],
)  # fmt: skip
async def test_an_order_chooses_neither_folder_nor_image_nor_name(
    tmp_path: pathlib.Path, changes: dict[str, Any]
) -> None:
    order = {"verb": "machine-create", **hands.order_of(WISH), **changes}
    async with serving(tmp_path) as served:
        answer = await asked(served.path, json.dumps(order).encode() + b"\n")
        assert answer["error"] == "refused"
        assert await hands.Helper(served.path).all() == []


@pytest.mark.parametrize("verb", ["create", "reboot"])
async def test_the_helper_starts_no_emulator_as_root(tmp_path: pathlib.Path, verb: str) -> None:
    emulated = dataclasses.replace(WISH, kind=machines.Kind.QEMU)
    async with serving(tmp_path) as served:
        helper = hands.Helper(served.path)
        if verb == "reboot":  # made by a Platform that root ran, before this one was installed
            keepers = local_bench.Keepers()
            former = host.Host(served.places, launcher=keepers, network=local_bench.NoNetwork())
            former.create(emulated, now=NOW)
            keeper.say(served.places.folder / emulated.name, keeper.Phase.OFF)
        with pytest.raises(hands.Refused, match="holds no emulators") as refused:
            await (
                helper.create(emulated, now=NOW)
                if verb == "create"
                else helper.reboot(emulated.name)
            )
        assert refused.value.code == "refused"
        assert [one.phase for one in await helper.all()] == (
            [keeper.Phase.OFF] if verb == "reboot" else []
        )


async def test_a_tree_of_any_depth_is_deleted(tmp_path: pathlib.Path) -> None:
    """As root in the machine makes it: folders by the thousand, each in the one before."""
    async with serving(tmp_path) as served:
        helper = hands.Helper(served.path)
        made = await helper.create(WISH, now=NOW)
        folder = served.places.folder / made.machine.name
        root = folder / disk.ROOT
        root.mkdir()
        deep_trees.make(root)
        assert await helper.delete(made.machine.name)
        assert not folder.exists()
        assert await helper.all() == []


async def test_a_request_that_trips_the_helper_ends_that_request_alone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as served:
        helper = hands.Helper(served.path)
        made = await helper.create(WISH, now=NOW)

        def trip(_self: host.Host, name: str) -> bool:
            raise RecursionError(name)

        with monkeypatch.context() as tripping:
            tripping.setattr(host.Host, "delete", trip)
            with pytest.raises(hands.Refused, match="fault of the root helper") as refused:
                await helper.delete(made.machine.name)
        assert refused.value.code == "failed"
        assert await helper.all() == [made]
        assert await helper.delete(made.machine.name)


async def test_who_sends_half_a_request_is_let_go_and_others_are_served(
    tmp_path: pathlib.Path,
) -> None:
    async with serving(tmp_path) as served:
        _, writer = await asyncio.open_unix_connection(str(served.path))
        writer.write(b'{"verb": "machine-')
        await writer.drain()
        assert await hands.Helper(served.path).all() == []
        writer.close()
        await writer.wait_closed()


async def test_without_work_it_ends_by_itself(tmp_path: pathlib.Path) -> None:
    places = host.Places(folder=tmp_path / "machines", images=tmp_path / "images")
    here = host.Host(places, launcher=local_bench.Keepers(), network=local_bench.NoNetwork())
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "helper.sock"))
        listener.listen()
        service = root_service.Service(
            here, clock=clock_kit.SystemClock(), peers=frozenset({0}), idle_seconds=0.1
        )
        async with asyncio.timeout(10):
            await service.run(listener)
