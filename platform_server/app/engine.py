"""The engine process: the one composition root of the Platform's decisions.

It takes its sockets from the host, opens the store, the master key and the trust keys, builds
every part once, says that it is ready, and serves until SIGTERM. Any number may run on one
PostgreSQL; on SQLite a lock beside the file lets one run.
"""

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator
from typing import Final

import uvloop

from platform_server.app import assembly, data_dir, failures, logs, orders, store_lock
from platform_server.endpoints import doors
from platform_server.sealing import envelope, key_file, master_key
from platform_server.settings import groups, layers
from platform_server.store import contract, opening
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points, descriptors, supervise
from wire_protocol import problems

_LOG = logging.getLogger(__name__)
_DRAIN_SECONDS: Final = 4.0
_HANDSHAKE_SECONDS: Final = 5.0
_OTHER_DESCRIPTORS: Final = 256  # the store, the log, what is opened for a moment

STORE_OPEN = crash_points.declare("engine.store-open", story="the store is open and migrated")
KEYS_OPEN = crash_points.declare("engine.keys-open", story="the master key has been judged")
BUILT = crash_points.declare("engine.built", story="every part is built, nothing is served yet")
SERVING = crash_points.declare("engine.serving", story="it serves, the host does not know yet")


def main(given: orders.Orders) -> int:
    """Runs one engine to its end; the exit code says why."""
    try:
        loaded = layers.load(
            given.data_dir,
            config_file=given.config_file,
            environ=os.environ,
            flags=given.flags,
        )
        settings = loaded.settings
        logs.configure(level=settings.log.level, form=settings.log.format, process="engine")
        _allow_descriptors(given, settings=settings)
        uvloop.run(run(given, loaded=loaded))
    except failures.CannotStart as fault:
        sys.stderr.write(f"Error: {fault}\n")
        return fault.exit_code
    except layers.InvalidSettings as fault:
        sys.stderr.write(f"Error: {fault}\n")
        return int(problems.Exit.INVALID)
    except contract.StoreError as fault:
        sys.stderr.write(f"Error: {fault}\n")
        passing = isinstance(fault, contract.StoreBusy | contract.StoreFull | contract.StoreAway)
        return int(problems.Exit.TEMPORARY if passing else problems.Exit.NEEDS_OPERATOR)
    except OSError as fault:
        full = fault.errno in (errno.ENOSPC, errno.EDQUOT)
        sys.stderr.write(f"Error: The engine cannot start: {fault}\n")
        return int(problems.Exit.TEMPORARY if full else problems.Exit.OUR_FAULT)
    except supervise.UnexpectedEnd as fault:
        _LOG.error("The engine stops", extra={"reason": str(fault)})
        return int(problems.Exit.OUR_FAULT)
    return int(problems.Exit.DONE)


def _allow_descriptors(given: orders.Orders, *, settings: groups.Settings) -> None:
    """Sessions are descriptors; where the system allows fewer, the log says how many fit."""
    if not given.gateway_fds:
        return
    others = 2 * settings.api.connections + settings.probe.concurrency + _OTHER_DESCRIPTORS
    others += 2 * settings.enrollment.connections * settings.enrollment.workers
    wanted = settings.gateway.sessions + others
    allowed = descriptors.raise_limit(wanted)
    if allowed < wanted:
        _LOG.warning(
            "This system allows fewer open files than gateway.sessions asks for; raise "
            "LimitNOFILE= of the unit, or ulimit -n, for as many sessions",
            extra={"sessions": settings.gateway.sessions, "allowed": allowed},
        )


async def run(given: orders.Orders, *, loaded: layers.Loaded) -> None:
    """Opens, builds, serves, drains; raises `CannotStart` and `StoreError` before it serves."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    clock = clock_kit.SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(_opened(given, loaded=loaded, clock=clock))
        keyring = await _keys(given, store=store, clock=clock)
        parts = await assembly.build(
            given,
            settings=loaded.settings,
            store=store,
            keyring=keyring,
            clock=clock,
            engine_id=secrets.token_hex(8),
            draining=stop,
        )
        crash_points.reach(BUILT)
        await _serve(given, parts=parts)
        crash_points.reach(SERVING)
        orders.say_ready(given.ready_fd, ready=parts.ready)
        _LOG.info("The engine serves", extra={"store": store.dialect.value})
        try:
            await supervise.run(parts.tasks, stop=stop)
        finally:
            stop.set()
            await _drain(parts)
            await parts.close()
            _LOG.info("The engine has drained")


@contextlib.asynccontextmanager
async def _opened(
    given: orders.Orders, *, loaded: layers.Loaded, clock: clock_kit.Clock
) -> AsyncIterator[contract.Store]:
    url = loaded.settings.store.database_url or f"sqlite:///{given.data_dir}/enlist.db"
    with store_lock.held(url):
        try:
            store = await opening.open_store(
                url, time=clock, busy_seconds=loaded.settings.store.busy_seconds
            )
        except ValueError as fault:
            raise failures.CannotStart(str(fault), exit_code=problems.Exit.INVALID) from fault
        try:
            crash_points.reach(STORE_OPEN)
            yield store
        finally:
            await store.close()


async def _keys(
    given: orders.Orders, *, store: contract.Store, clock: clock_kit.Clock
) -> envelope.Keyring:
    try:
        keyring = await master_key.open_keyring(
            store,
            path=data_dir.master_key_path(given.data_dir, environ=os.environ),
            now=clock.now(),
        )
    except (master_key.WrongMasterKey, key_file.Unusable) as fault:
        raise failures.CannotStart(str(fault), exit_code=problems.Exit.NEEDS_OPERATOR) from fault
    crash_points.reach(KEYS_OPEN)
    return keyring


async def _serve(given: orders.Orders, *, parts: assembly.Parts) -> None:
    loop = asyncio.get_running_loop()
    tls = None if parts.api_tls is None else parts.api_tls.context
    plan: list[tuple[int, doors.Door]] = [
        (given.local_fd, doors.Door.LOCAL),
        *((fd, doors.Door.API) for fd in given.api_fds),
    ]
    for descriptor, door in plan:
        server = parts.servers[door]
        sock = socket.socket(fileno=descriptor)
        sock.setblocking(False)  # noqa: FBT003 - the library's own signature
        if door is doors.Door.API:
            server.listens_on(
                await loop.create_server(
                    server, sock=sock, ssl=tls, ssl_handshake_timeout=_HANDSHAKE_SECONDS
                )
                if tls is not None
                else await loop.create_server(server, sock=sock)
            )
        else:
            server.listens_on(await loop.create_unix_server(server, sock=sock))
    parts.enroll_server.start(socket.socket(fileno=given.enroll_fd))
    if parts.gateway is not None:
        for descriptor in given.gateway_fds:
            parts.gateway.start(socket.socket(fileno=descriptor))


async def _drain(parts: assembly.Parts) -> None:
    """Takes nothing new, lets what is in work finish, and closes the rest."""
    async with asyncio.TaskGroup() as group:
        for server in parts.servers.values():
            group.create_task(server.drain(seconds=_DRAIN_SECONDS))
        group.create_task(parts.enroll_server.drain(timeout_s=_DRAIN_SECONDS))
        if parts.gateway is not None:
            group.create_task(parts.gateway.drain(seconds=_DRAIN_SECONDS))
