"""Keeps the certificates of the enrollment port, of the gateway and of the API.

The engine looks every minute, and when another engine has published something: renews with the
same key near the end or when names change, carries out a switch of keys whose day has come, and
writes what the listener's processes serve (run/listener/tls.pem, 0600, replaced whole). The
gateway, in this same process, is handed its key and certificate; they touch no disk. Not for:
making keys (trust.port_certificate).
"""

import asyncio
import logging
import pathlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from platform_server.app import api_tls, data_dir, orders
from platform_server.sealing import envelope
from platform_server.settings import groups
from platform_server.store import contract
from platform_server.trust import port_certificate
from runtime_kit import clock as clock_kit
from runtime_kit import crash_points, private_files
from wire_protocol import pins

_LOG = logging.getLogger(__name__)
LOOK_SECONDS: Final = 60.0
_FILES_SECONDS: Final = 2.0

CHANGED = crash_points.declare(
    "tls-key.changed", story="a port has other pins, nobody has been told by a statement yet"
)
OnChange = Callable[[], Awaitable[None]]
ServeWith = Callable[[port_certificate.PortIdentity], None]


class Certificates:
    """The port identities of this engine."""

    def __init__(
        self,
        store: contract.Store,
        *,
        given: orders.Orders,
        settings: groups.Settings,
        keyring: envelope.Keyring,
        clock: clock_kit.Clock,
    ) -> None:
        self._store = store
        self._given = given
        self._keyring = keyring
        self._clock = clock
        run = given.data_dir / data_dir.RUN
        self._listener_file = run / "listener" / "tls.pem"
        self._api_file = run / "api-tls.pem"
        self._own_api_certificate = settings.api.tls_cert_file is None
        self._lock = asyncio.Lock()
        self._enrollment: port_certificate.PortIdentity | None = None
        self._gateway: port_certificate.PortIdentity | None = None
        self._serve_gateway_with: ServeWith | None = None
        self._api: port_certificate.PortIdentity | None = None
        self.api_tls: api_tls.ApiTls | None = None
        self.on_change: OnChange | None = None
        if given.api_speaks_tls:
            cert = settings.api.tls_cert_file or self._api_file
            key = settings.api.tls_key_file or self._api_file
            self.api_tls = api_tls.ApiTls(cert_file=pathlib.Path(cert), key_file=pathlib.Path(key))

    @property
    def enrollment(self) -> port_certificate.PortIdentity | None:
        """What the enrollment port serves with, or None while it is off."""
        return self._enrollment

    @property
    def enrollment_pins(self) -> Sequence[pins.Pin]:
        """The pins of the enrollment port, now and after a planned switch."""
        return () if self._enrollment is None else self._enrollment.pins

    @property
    def gateway(self) -> port_certificate.PortIdentity | None:
        """What the gateway serves with, or None while it is off."""
        return self._gateway

    @property
    def gateway_pins(self) -> Sequence[pins.Pin]:
        """The pins of the gateway, now and after a planned switch."""
        return () if self._gateway is None else self._gateway.pins

    @property
    def api_pins(self) -> Sequence[pins.Pin]:
        """The pins of the Platform's own certificate for the API."""
        return () if self._api is None else self._api.pins

    def serve_gateway_with(self, serve_with: ServeWith) -> None:
        """Hands the gateway its key and certificate now, and each that follows."""
        self._serve_gateway_with = serve_with
        if self._gateway is not None:
            serve_with(self._gateway)

    async def ensure(self) -> bool:
        """Does what is due and writes the files; says whether pins have changed.

        Raises as the store does, `OSError` when a file cannot be written, and `CannotStart`
        before the first load when the operator's files are no pair.
        """
        async with self._lock:
            before = (self.enrollment_pins, self.gateway_pins, self.api_pins)
            # The bundle port serves with the same key, beside the enrollment port or without it.
            if self._given.enrollment_url is not None or self._given.bundle_url is not None:
                self._enrollment = await self._identity(
                    port_certificate.ENROLLMENT, names=self._given.enrollment_names
                )
                _write_if_changed(self._listener_file, self._enrollment.pem_file_content())
            if self._given.gateway_fds:
                await self._ensure_gateway()
            if self.api_tls is not None:
                await self._ensure_api(self.api_tls)
            return (self.enrollment_pins, self.gateway_pins, self.api_pins) != before

    async def ensure_now(self) -> None:
        """After an operator's order: does what is due and tells who must know."""
        if await self.ensure() and self.on_change is not None:
            crash_points.reach(CHANGED)
            await self.on_change()

    async def follow(self) -> None:
        """The same by itself: what cannot be done now is logged and done at the next look."""
        try:
            await self.ensure_now()
        except (OSError, contract.StoreError) as fault:
            _LOG.warning("Certificates could not be looked at", extra={"reason": str(fault)})

    async def keep(self) -> None:
        """Runs for ever, for a supervised task."""
        due = self._clock.monotonic() + LOOK_SECONDS
        while True:
            await self._clock.sleep(_FILES_SECONDS)
            if self.api_tls is not None:
                self.api_tls.reload_if_changed()
            if self._clock.monotonic() < due and not self._switch_is_due():
                continue
            due = self._clock.monotonic() + LOOK_SECONDS
            await self.follow()

    def _switch_is_due(self) -> bool:
        now = self._clock.now()
        return any(
            one is not None and one.switch_at is not None and one.switch_at <= now
            for one in (self._enrollment, self._gateway)
        )

    async def _ensure_gateway(self) -> None:
        before = self._gateway
        self._gateway = await self._identity(
            port_certificate.GATEWAY, names=self._given.gateway_names
        )
        fresh = before is None or before.certificate_pem != self._gateway.certificate_pem
        if fresh and self._serve_gateway_with is not None:
            self._serve_gateway_with(self._gateway)

    async def _ensure_api(self, tls: api_tls.ApiTls) -> None:
        first = self._api is None and tls.is_empty
        if self._own_api_certificate:
            self._api = await self._identity(port_certificate.API, names=self._given.api_names)
            _write_if_changed(self._api_file, self._api.pem_file_content())
        if first:
            tls.load()
        else:
            tls.reload_if_changed()

    async def _identity(self, port: str, *, names: Sequence[str]) -> port_certificate.PortIdentity:
        now = self._clock.now()
        found = await self._store.transact(
            lambda tx: port_certificate.ensure(
                tx, port=port, names=names, keyring=self._keyring, now=now
            )
        )
        if found.was_not_yet_valid:
            _LOG.warning(
                "The port's certificate was not valid yet and was issued again with the same key; "
                "check this machine's clock (timedatectl)",
                extra={"port": port},
            )
        return found


def _write_if_changed(path: pathlib.Path, content: bytes) -> None:
    try:
        if private_files.read_private(path, max_bytes=api_tls.MAX_BYTES) == content:
            return
    except (OSError, private_files.LaxMode, private_files.FileTooLarge):
        pass  # not there, or not as we write it: written anew below
    private_files.write_private(path, content)
