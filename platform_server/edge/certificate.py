"""The certificate of a port at the edge, taken anew from its file as soon as the file changes.

Each handshake looks at the file (one ``stat``, in OpenSSL's server-name callback, which is called
for every client whether it names a server or not), so that all processes on the port serve the
new certificate from the same moment on and none has to be told.
Known limit: a replaced file that cannot be used is noted once and the former certificate kept.
"""

import ssl
from collections.abc import Callable
from pathlib import Path

from runtime_kit import tls

_Mark = tuple[int, int, int]


class CertificateFile:
    """A file with a key and its certificate chain.

    Args:
        path: Written aside and renamed by its owner, never in place.
        note: Told of each replacement: an event and the reason, empty if all is well.

    Raises:
        OSError: The file cannot be used at the start.
    """

    def __init__(self, path: Path, *, note: Callable[[str, str], None]) -> None:
        self._path = path
        self._note = note
        self._mark = self._look()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""
        return self._context

    def _load(self) -> ssl.SSLContext:
        context = tls.server_context(self._path)
        context.sni_callback = self._on_hello
        return context

    def _look(self) -> _Mark:
        status = self._path.stat()
        return status.st_mtime_ns, status.st_ino, status.st_size

    def _refresh(self) -> None:
        try:
            mark = self._look()
        except OSError:
            return  # being replaced, or gone: what is in memory serves
        if mark == self._mark:
            return
        self._mark = mark
        try:
            self._context = self._load()
        except OSError as error:
            self._note("Certificate could not be replaced", str(error))
        else:
            self._note("Certificate replaced", "")

    def _on_hello(
        self, connection: ssl.SSLObject, _name: str | None, context: ssl.SSLContext
    ) -> None:
        self._refresh()
        if context is not self._context:
            connection.context = self._context
