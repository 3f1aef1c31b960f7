"""Which clients may speak to this Agent: those that hold a certificate by a trust key valid now.

A TLS context's anchors cannot be taken back, so a context is made anew whenever the set of keys
valid now changes: by a new statement, or by a key's window opening or ending. Each connection asks
for the present one; asking costs a comparison.
"""

import ssl

from runtime_kit import clock as clock_kit
from runtime_kit import tls
from wire_protocol import ids, trust
from worker_agent.settings import paths


class Anchors:
    """Holds the trust set in memory and the context that follows from it."""

    def __init__(self, where: paths.Paths, *, held: trust.Held, clock: clock_kit.Clock) -> None:
        self._where = where
        self._held = held
        self._clock = clock
        self._made_of: tuple[ids.KeyId, ...] | None = None
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
        valid = self.key_ids()
        if self._context is None or valid != self._made_of:
            self._context = self._make()
            self._made_of = valid
        return self._context

    def _make(self) -> ssl.SSLContext:
        return tls.mutual_server_context(
            self._where.certificate, key=self._where.key, anchors_pem="".join(self.certificates())
        )
