"""The host: the process of `enlist serve` that lasts.

It binds every socket or takes it from a service manager, starts the engine and the processes at the
edge (`edges`) and hands them the sockets, holds no secret and opens no store. While an engine is
replaced or has died, the sockets stay: what connects waits in their queues and is served by the
next engine.
"""

import asyncio
import dataclasses
import logging
import os
import pathlib
import signal
from collections.abc import Callable, Mapping
from typing import Final

from platform_server.app import binding, children, data_dir, edges, failures, logs, orders, passed
from platform_server.settings import groups, layers
from runtime_kit import service_manager
from wire_protocol import problems

_LOG = logging.getLogger(__name__)
_READY_SECONDS: Final = 60.0
_ENGINE_STOP_SECONDS: Final = 5.5  # with the edge's before it within 10 s
_RESTARTS: Final = 5
_RESTART_WINDOW_SECONDS: Final = 60.0
_FIRST_WAIT_SECONDS: Final = 0.2
_MOST_WAIT_SECONDS: Final = 10.0
_READY_BYTES: Final = 65_536


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What `enlist serve` was asked for."""

    data_dir: pathlib.Path
    config_file: pathlib.Path | None
    flags: Mapping[str, layers.Given]
    on_ready: Callable[[binding.Bound, orders.Ready], None]


def serve(request: Request) -> int:
    """Runs a Platform to its end; gives the exit code. Raises `CannotStart`, `InvalidSettings`."""
    data_dir.require_ours(request.data_dir)
    loaded = _load(request)
    logs.configure(level=loaded.settings.log.level, form=loaded.settings.log.format, process="host")
    run = data_dir.ensure(request.data_dir)
    data_dir.ensure_bundles(request.data_dir, shared=loaded.settings.bundles.unit)
    given, manager = passed.of_this_process()
    lock = data_dir.lock(run)
    try:
        with binding.bound(loaded.settings, run=run, given=given) as sockets:
            host = Host(request, bound=sockets, settings=loaded.settings, manager=manager)
            return asyncio.run(host.run())
    finally:
        os.close(lock)


def _load(request: Request) -> layers.Loaded:
    return layers.load(
        request.data_dir,
        config_file=request.config_file,
        environ=os.environ,
        flags=request.flags,
    )


class Host:
    """Supervises one engine and the processes at the edge."""

    def __init__(
        self,
        request: Request,
        *,
        bound: binding.Bound,
        settings: groups.Settings,
        manager: service_manager.Manager,
    ) -> None:
        self._request = request
        self._bound = bound
        self._manager = manager
        self._settings = settings
        self._stop = asyncio.Event()
        self._replace = asyncio.Event()
        self._engine: children.Child | None = None
        self._edge: list[children.Child] = []
        self._restarts: list[float] = []

    async def run(self) -> int:
        """Starts everything, keeps it running, ends it; raises `CannotStart`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._replace.set)
        try:
            ready = await self._start_engine()
            if ready is None:
                return int(problems.Exit.DONE)  # told to stop before anything served
            self._write_for_units()
            self._edge = [
                self._start_edge(one) for one in edges.wanted(self._bound, self._settings)
            ]
            self._request.on_ready(self._bound, ready)
            self._manager.ready(f"{self._bound.api_url} answers")
            await self._watch()
        finally:
            await self._end()
        return int(problems.Exit.DONE)

    async def _watch(self) -> None:
        while not self._stop.is_set():
            happened = await self._next_event()
            if self._stop.is_set():
                return
            if self._replace.is_set():
                self._replace.clear()
                await self._replace_engine()
            elif happened is self._engine:
                await self._restart_engine()
            elif happened in self._edge:
                await self._restart_edge(happened)

    async def _next_event(self) -> children.Child | None:
        """Waits for a signal or for a child's end; gives that child."""
        watched = {
            asyncio.create_task(child.ended(), name=child.name): child
            for child in (self._engine, *self._edge)
            if child is not None
        }
        signals = [asyncio.create_task(one.wait()) for one in (self._stop, self._replace)]
        done, _ = await asyncio.wait([*watched, *signals], return_when=asyncio.FIRST_COMPLETED)
        for task in (*watched, *signals):
            task.cancel()
        return next((watched[task] for task in done if task in watched), None)

    async def _start_engine(self) -> orders.Ready | None:
        """Starts an engine and waits until it serves; None when told to stop meanwhile.

        Raises `CannotStart` with the engine's own exit code when it refuses.
        """
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        given = orders.Orders(
            data_dir=self._request.data_dir,
            config_file=self._request.config_file,
            flags=self._request.flags,
            api_fds=[one.fileno() for one in self._bound.api],
            local_fd=self._bound.local.fileno(),
            enroll_fd=self._bound.enroll.fileno(),
            ready_fd=write_end,
            api_url=self._bound.api_url,
            api_speaks_tls=self._bound.api_speaks_tls,
            api_names=self._bound.api_names,
            enrollment_url=self._bound.enrollment_url,
            enrollment_names=self._bound.enrollment_names,
            gateway_fds=[one.fileno() for one in self._bound.gateway],
            gateway_urls=self._bound.gateway_urls,
            gateway_names=self._bound.gateway_names,
            bundle_url=self._bound.bundle_url,
        )
        descriptor = orders.write(given)
        try:
            engine = children.start(
                "engine",
                module=("platform_server", "engine", "--orders-fd", str(descriptor)),
                inherit=(descriptor, *given.descriptors()),
            )
        finally:
            os.close(descriptor)
            os.close(write_end)
        self._engine = engine
        return await self._until_ready(engine, read_end=read_end)

    async def _until_ready(self, engine: children.Child, *, read_end: int) -> orders.Ready | None:
        reading = asyncio.create_task(_read_line(read_end), name="engine-ready")
        stopping = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait(
                [reading, stopping],
                timeout=_READY_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stopping.cancel()
            reading.cancel()
        if reading in done and (line := reading.result()):
            return orders.parse_ready(line)
        if self._stop.is_set():
            return None
        if reading not in done:
            await engine.stop(seconds=_ENGINE_STOP_SECONDS)
            raise failures.CannotStart(
                f"The engine was not ready within {_READY_SECONDS:.0f} s; its log says where it "
                "stands.",
                exit_code=problems.Exit.OUR_FAULT,
            )
        code = await engine.ended()
        if code < 0:  # one that refuses says why itself
            _LOG.error("The engine was killed before it served", extra={"signal": -code})
        raise EngineRefused(code)

    async def _replace_engine(self) -> None:
        """SIGHUP: another engine with the settings as they are now; the sockets stay."""
        try:
            settings = _load(self._request).settings
        except layers.InvalidSettings as fault:
            _LOG.error("The engine is not replaced", extra={"reason": str(fault)})
            return
        _LOG.info("Replacing the engine")
        self._manager.reloading()
        try:
            await self._replace_by(settings)
        finally:
            self._manager.ready()

    async def _replace_by(self, settings: groups.Settings) -> None:
        old = self._engine
        one_at_a_time = not (settings.store.database_url or "sqlite:").startswith("postgres")
        if old is not None and one_at_a_time:
            await old.stop(seconds=_ENGINE_STOP_SECONDS)
        try:
            await self._start_engine()
        except (failures.CannotStart, EngineRefused) as fault:
            _LOG.error("The new engine does not start", extra={"reason": str(fault)})
            if old is not None and old.is_running:
                self._engine = old
            return
        self._settings = settings
        self._write_for_units()
        if old is not None and not one_at_a_time:
            await old.stop(seconds=_ENGINE_STOP_SECONDS)
        _LOG.info("The engine was replaced")

    async def _restart_engine(self) -> None:
        code = -1 if self._engine is None else await self._engine.ended()
        _LOG.error("The engine ended by itself", extra={"exit_code": code})
        passing = 0  # refusals in a row for what passes by itself, as a database that is away
        while not self._stop.is_set():
            wait = _FIRST_WAIT_SECONDS * 2 ** min(passing, 6)
            if not await (
                self._pause(min(wait, _MOST_WAIT_SECONDS))
                if passing
                else self._wait_before_restart()
            ):
                return
            try:
                await self._start_engine()
            except (failures.CannotStart, EngineRefused) as fault:
                _LOG.error("The engine does not start", extra={"reason": str(fault)})
                passing = passing + 1 if fault.exit_code == problems.Exit.TEMPORARY else 0
            else:
                return

    async def _restart_edge(self, gone: children.Child) -> None:
        _LOG.error(
            "A process at the edge ended by itself",
            extra={"part": gone.name, "exit_code": await gone.ended(), "pid": gone.pid},
        )
        self._edge.remove(gone)
        if await self._wait_before_restart():
            self._edge.append(self._start_edge(gone.name))

    async def _wait_before_restart(self) -> bool:
        """Waits longer each time; False when told to stop. Raises `CannotStart` at the fifth."""
        now = asyncio.get_running_loop().time()
        self._restarts = [at for at in self._restarts if now - at < _RESTART_WINDOW_SECONDS]
        if len(self._restarts) >= _RESTARTS:
            raise failures.CannotStart(
                f"Parts of the Platform ended {_RESTARTS} times within a minute; the log above "
                "says of what. The Platform stops.",
                exit_code=problems.Exit.OUR_FAULT,
            )
        self._restarts.append(now)
        return await self._pause(_FIRST_WAIT_SECONDS * 2 ** (len(self._restarts) - 1))

    async def _pause(self, seconds: float) -> bool:
        """Waits that long; False when told to stop meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return True
        return False

    def _start_edge(self, name: str) -> children.Child:
        return edges.start(
            name, bound=self._bound, settings=self._settings, folder=self._request.data_dir
        )

    def _write_for_units(self) -> None:
        """What the edge's own units are to know, before whoever waits for us starts them."""
        try:
            edges.write_for_units(self._settings, folder=self._request.data_dir)
        except OSError as fault:
            raise failures.CannotStart(
                f"What the listener's unit needs cannot be written: {fault}",
                exit_code=problems.Exit.TEMPORARY,
            ) from None

    async def _end(self) -> None:
        """The edge first, so that what it holds can still be served; then the engine."""
        self._manager.stopping()
        async with asyncio.TaskGroup() as group:
            for child in self._edge:
                group.create_task(child.stop(seconds=edges.STOP_SECONDS))
        if self._engine is not None:
            await self._engine.stop(seconds=_ENGINE_STOP_SECONDS)
        _LOG.info("The Platform has stopped")


class EngineRefused(Exception):
    """The engine refused to start and has said why on stderr; `exit_code` is its own."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"The engine ended with exit code {exit_code}; it said why above.")
        self.exit_code = exit_code if exit_code > 0 else int(problems.Exit.OUR_FAULT)


async def _read_line(descriptor: int) -> bytes:
    """One line from the pipe, or nothing when the other end closes it."""
    loop = asyncio.get_running_loop()
    with os.fdopen(descriptor, "rb") as pipe:
        reader = asyncio.StreamReader(limit=_READY_BYTES)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            return await reader.readline()
        finally:
            transport.close()
