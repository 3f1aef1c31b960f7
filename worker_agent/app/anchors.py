"""Which clients may speak to this Agent: those that hold a certificate by a trust key valid now.

A TLS context's anchors cannot be taken back, so a context is made anew whenever the set of keys
valid now changes, by a new statement or by a key's window opening or ending, and whenever this
machine's own certificate was renewed. Each connection asks for the present one; asking costs a
comparison and a look at one file.
"""

import logging
import os
import ssl

from runtime_kit import clock as clock_kit
from runtime_kit import tls
from wire_protocol import ids, trust
from worker_agent.settings import paths

LOGGER = logging.getLogger(__name__)


class Anchors:
    """Holds the trust set in memory and the context that follows from it."""

    def __init__(self, where: paths.Paths, *, held: trust.Held, clock: clock_kit.Clock) -> None:
        self._where = where
        self._held = held
        self._clock = clock
        self._made_of: tuple[object, ...] | None = None
        self._context: ssl.SSLContext | None = None

    @property
    def held(self) -> trust.Held:
        """The trust set in use."""
        return self._held

    def replace(self, held: trust.Held) -> None:
        """Puts a newer trust set into use, for connections made from now on."""
        self._held = held

    def key_ids(self) -> tuple[ids.KeyId, ...]:
        """The trust keys valid now."""
        return tuple(key.key_id for key in self._held.keys_valid_at(self._clock.now()))

    def certificates(self) -> tuple[str, ...]:
        """The certificates of the trust keys valid now, as PEM."""
        valid = self._held.keys_valid_at(self._clock.now())
        return tuple(key.certificate_pem.rstrip() + "\n" for key in valid)

    def client_uri(self) -> str:
        """The name that the Platform's client certificate must carry."""
        return f"enlist:platform:{self._held.statement.platform_id}"

    def context(self) -> ssl.SSLContext:
        """The context for a connection that begins now."""
        made_of = (self.key_ids(), self._stamp())
        if self._context is None or made_of != self._made_of:
            try:
                self._context = self._make()
            except OSError:
                if self._context is None:
                    raise
                # Between the key and the certificate of a renewal; the next connection looks again.
                LOGGER.warning("The certificate cannot be read just now, the former one is shown")
                return self._context
            self._made_of = made_of
        return self._context

    def _make(self) -> ssl.SSLContext:
        return tls.mutual_server_context(
            self._where.certificate, key=self._where.key, anchors_pem="".join(self.certificates())
        )

    def _stamp(self) -> tuple[int, int] | None:
        try:
            info = os.stat(self._where.certificate)  # noqa: PTH116 - asked at each connection
        except OSError:
            return None
        return info.st_mtime_ns, info.st_ino
