"""TLS of the API beyond loopback: the operator's certificate, or the Platform's own.

One context for the engine's life. A new certificate is loaded into it, so that the next handshake
uses it and open connections live on. TLS 1.3 alone, no session tickets (design, TLS details).
"""

import logging
import pathlib
import ssl
from typing import Final

from platform_server.app import failures
from runtime_kit import private_files
from wire_protocol import problems

_LOG = logging.getLogger(__name__)
MAX_BYTES: Final = 65_536


class ApiTls:
    """The API's TLS context with the files behind it."""

    def __init__(self, *, cert_file: pathlib.Path, key_file: pathlib.Path) -> None:
        self._cert_file = cert_file
        self._key_file = key_file
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.num_tickets = 0
        self.context.set_alpn_protocols(["http/1.1"])
        self._seen: tuple[bytes, bytes] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been loaded yet."""
        return self._seen is None

    def load(self) -> None:
        """Loads both files; raises `CannotStart` when they do not fit together."""
        try:
            self._seen = self._read()
            self._check_pair()
            self.context.load_cert_chain(self._cert_file, self._key_file)
        except (OSError, private_files.FileTooLarge) as fault:
            raise failures.CannotStart(
                f"The API's certificate {self._cert_file} and key {self._key_file} cannot be "
                f"used: {fault}",
                exit_code=problems.Exit.INVALID,
            ) from None

    def reload_if_changed(self) -> bool:
        """Loads the files again if they are others than before; keeps the old pair if bad."""
        try:
            fresh = self._read()
            if fresh == self._seen:
                return False
            self._seen = fresh
            self._check_pair()
            self.context.load_cert_chain(self._cert_file, self._key_file)
        except (OSError, private_files.FileTooLarge) as fault:
            _LOG.error(
                "The API's new certificate is not usable, the old one stays",
                extra={"reason": str(fault)},
            )
            return False
        _LOG.info("The API's certificate was replaced")
        return True

    def _read(self) -> tuple[bytes, bytes]:
        return (
            private_files.read_bounded(self._cert_file, max_bytes=MAX_BYTES),
            private_files.read_bounded(self._key_file, max_bytes=MAX_BYTES),
        )

    def _check_pair(self) -> None:
        # loading a wrong pair into the live context would leave it half changed
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert_file, self._key_file)
