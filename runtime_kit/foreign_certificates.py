"""Reading certificates that a stranger made.

API::

    with foreign_certificates.translated():
        certificate = x509.load_der_x509_certificate(der)
        key, names = certificate.public_key(), certificate.extensions

For: one thing to catch. The library parses lazily and by part, and each part has exceptions of its
own, of which only some are ``ValueError``: an unknown kind of key, a version that is none, an
extension twice. Everything that is to be read of the certificate belongs into the block.
Not for: judging what was read.
"""

import contextlib
from collections.abc import Iterator

from cryptography import exceptions, x509

_FAULTS = (
    ValueError,
    TypeError,
    exceptions.UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Inside the block, whatever a certificate makes its parser raise becomes ``ValueError``.

    What the certificate does not have (``x509.ExtensionNotFound``) is no fault of reading.
    """
    try:
        yield
    except _FAULTS as fault:
        raise ValueError(f"It is no certificate that can be read: {fault}") from fault
