"""The Platform of the simulation, through its starts and stops; see `simulated`."""

import asyncio
import contextlib
import datetime
import pathlib
import random
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from platform_server.enrollment import limiter
from platform_server.gateway import gateway as gateways
from platform_server.gateway import rules
from platform_server.nodes import liveness
from platform_server.sealing import envelope
from platform_server.store import contract, opening
from platform_server.trust import port_certificate, rotation, statements
from runtime_kit import clock as clock_kit
from runtime_kit import pinned_handshake
from tests.support import domain, virtual_time
from tests.support import gateways as engines
from wire_protocol import ids, join_token

DAY = 86_400.0
HEARTBEAT_SECONDS = 7 * DAY  # five years of one every 30 s would take days
TURN_SECONDS = 2 * DAY
CERTIFICATE_DAYS = 90
ENROLLMENT_URL = "https://platform.example:8444"
GATEWAY_URL = "https://platform.example:8445"
_LIMITS = limiter.Limits(per_minute=100_000, per_address=100_000, per_token=100_000)
_ENDS: tuple[str, ...] = (port_certificate.ENROLLMENT, port_certificate.GATEWAY)


class Platform:
    """The Platform through its starts and stops."""

    def __init__(
        self,
        *,
        folder: pathlib.Path,
        loop: virtual_time.Loop,
        clock: virtual_time.VirtualClock,
        chance: random.Random,
    ) -> None:
        self._folder = folder
        self._loop = loop
        self._chance = chance
        self._keyring: envelope.Keyring = domain.new_keyring()
        self._engine: engines.Engine | None = None
        self._starts = 0
        self._ports: dict[str, port_certificate.PortIdentity] = {}
        self._turning = asyncio.Lock()
        self.clock = clock
        self.store: contract.Store

    async def open(self) -> None:
        """Opens the store and starts for the first time."""
        with self._loop.outside():
            opened = await opening.open_store(
                f"sqlite:///{self._folder}/enlist.db", time=self.clock, busy_seconds=5
            )
        self.store = cast("contract.Store", virtual_time.OutsideStore(opened, loop=self._loop))
        await self.start()

    async def close(self) -> None:
        """Stops and closes the store."""
        await self.stop()
        with self._loop.outside():
            await self.store.close()

    @property
    def engine(self) -> engines.Engine | None:
        """The engine that runs, if one does."""
        return self._engine

    @property
    def running(self) -> engines.Engine:
        """The engine, which runs."""
        assert self._engine is not None
        return self._engine

    def leaf(self, port: str) -> pinned_handshake.Leaf:
        """What the port shows."""
        pem = self._ports[port].certificate_pem.encode()
        der = x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
        return pinned_handshake.read_leaf(der)

    async def start(self) -> None:
        """As the engine starts: nodes are unheard, the gateway knows them all."""
        await self._look_at_ports()
        now = self.clock.now()
        await self.store.transact(lambda tx: liveness.forget_answers(tx, now=now))
        # The domain moves a manual clock only in tests that ask for it.
        clock = cast("clock_kit.ManualClock", self.clock)
        built = await domain.build(
            self.store,
            folder=self._folder,
            keyring=self._keyring,
            clock=clock,
            limits=_LIMITS,
            facts=self._facts(),
        )
        self._starts += 1
        gate = gateways.Gateway(
            self.store,
            trust=built.trust,
            operators=built.operators,
            given=rules.Rules(
                engine_id=f"engine-{self._starts}",
                environment="test",
                heartbeat_seconds=int(HEARTBEAT_SECONDS),
                certificate_days=CERTIFICATE_DAYS,
            ),
            clock=self.clock,
            chance=self._chance,
        )
        await gate.prepare()
        engine = engines.Engine(domain=built, gate=gate, opened=[])
        engine.domain.door._joined = lambda node_id, offered: gate.joined(
            node_id, pin=offered.pin, certificate_pem=offered.pem
        )
        self._engine = engine

    async def stop(self) -> None:
        """Drains and ends."""
        async with self._turning:
            engine, self._engine = self._engine, None
            if engine is not None:
                await engine.gate.drain(seconds=5)

    async def kill(self) -> None:
        """Ends as a power cut would; connections are cut by the caller."""
        async with self._turning:
            engine, self._engine = self._engine, None
            if engine is not None:
                for task in engine.gate._work:
                    task.cancel()
                await asyncio.gather(*engine.gate._work, return_exceptions=True)

    async def keep(self) -> None:
        """What runs beside an engine, for ever, at the simulation's pace."""
        while True:
            await self.clock.sleep(TURN_SECONDS)
            await self.turn()

    async def turn(self) -> None:
        """One round of it."""
        async with self._turning:
            engine = self._engine
            if engine is None:
                return
            await self._look_at_ports()
            await engine.domain.trust.publish(self._facts())
            await engine.turn()
            await engine.sweep()

    async def rotate_tls_key(self, port: str, *, after_days: float) -> None:
        """As `enlist platform rotate-tls-key` does."""
        now = self.clock.now()
        switch_at = now + datetime.timedelta(days=after_days)
        with contextlib.suppress(port_certificate.RotationUnderWay):
            await self.store.transact(
                lambda tx: port_certificate.rotate(
                    tx, port=port, keyring=self._keyring, switch_at=switch_at, now=now
                )
            )
        await self.turn()

    async def rotate_trust_key(self) -> None:
        """As `enlist platform rotate-trust-key` does."""
        now = self.clock.now()
        with contextlib.suppress(rotation.TooManyKeys):
            await self.store.transact(
                lambda tx: rotation.rotate_now(tx, keyring=self._keyring, now=now)
            )
        if self._engine is not None:
            await self._engine.domain.trust.follow()

    async def join_token(self, node_id: str) -> str:
        """A join token, as the route makes it."""
        issued = await self.running.domain.new_token(node_id)
        statement = self.running.domain.trust.published.statement
        made = join_token.JoinToken(
            url=ENROLLMENT_URL,
            node_id=ids.parse_node_id(node_id),
            token=issued.token,
            pins=tuple(self._ports[port_certificate.ENROLLMENT].pins),
            trust_key_ids=tuple(key.key_id for key in statement.trust_keys),
            expires_at=self.clock.now() + datetime.timedelta(hours=1),
        )
        return join_token.encode(made)

    async def value(self, sql: str, *values: object) -> Any:
        """The one value of a query."""
        row = await self.store.read(lambda tx: tx.fetch_one(sql, *values))
        return None if row is None else row["value"]

    async def _look_at_ports(self) -> None:
        now = self.clock.now()
        for port in _ENDS:
            self._ports[port] = await self.store.transact(
                lambda tx: port_certificate.ensure(
                    tx,
                    port=port,  # noqa: B023
                    names=["platform.example"],
                    keyring=self._keyring,
                    now=now,
                )
            )

    def _facts(self) -> statements.Facts:
        return statements.Facts(
            enrollment_pins=tuple(self._ports[port_certificate.ENROLLMENT].pins),
            gateway_pins=tuple(self._ports[port_certificate.GATEWAY].pins),
            enrollment_url=ENROLLMENT_URL,
            gateway_urls=(GATEWAY_URL,),
        )
