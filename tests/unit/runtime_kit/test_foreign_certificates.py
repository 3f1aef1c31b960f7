"""Certificates of strangers: whatever they hold, reading one is a `ValueError` at most."""

import hypothesis
import pytest
from cryptography import x509
from hypothesis import strategies as st
from OpenSSL import SSL, crypto

from runtime_kit import foreign_certificates, pinned_handshake
from tests.support import certificates

DER = certificates.issue().der
# The object identifiers of id-ecPublicKey and prime256v1, with a last arc that nobody has given.
UNKNOWN_KEY = DER.replace(bytes.fromhex("2a8648ce3d0201"), bytes.fromhex("2a8648ce3d0277"))
UNKNOWN_CURVE = DER.replace(bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d030177"))
ODD = {"an unknown kind of key": UNKNOWN_KEY, "an unknown curve": UNKNOWN_CURVE, "nothing": b""}

pytestmark = pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")


@pytest.mark.parametrize("case", ODD)
def test_a_leaf_cannot_be_read_that_has(case: str) -> None:
    with pytest.raises(ValueError, match="no certificate that can be read"):
        pinned_handshake.read_leaf(ODD[case])


@hypothesis.given(
    changes=st.lists(
        st.tuples(st.integers(0, len(DER) - 1), st.integers(0, 255)), min_size=1, max_size=4
    ),
    length=st.integers(0, len(DER)) | st.just(len(DER)),
)
def test_no_bytes_make_anything_but_a_value_error(
    changes: list[tuple[int, int]], length: int
) -> None:
    changed = bytearray(DER)
    for at, value in changes:
        changed[at] = value
    try:
        pinned_handshake.read_leaf(bytes(changed[:length]))
    except ValueError:
        return


@pytest.mark.parametrize("der", [UNKNOWN_KEY, UNKNOWN_CURVE], ids=["key", "curve"])
def test_a_server_whose_certificate_cannot_be_read_is_not_the_pinned_one(der: bytes) -> None:
    judge = pinned_handshake._Judge(frozenset({certificates.issue().pin}))
    shown = crypto.load_certificate(crypto.FILETYPE_ASN1, der)
    connection = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
    assert judge(connection, shown, 0, 0, 1) is False
    assert (judge.seen, judge.accepted) == (None, False)
    assert judge.got is not None
    assert "cannot be read (sha256:" in judge.got


def test_an_extension_that_is_not_there_is_no_fault_of_reading() -> None:
    certificate = certificates.issue(names=()).certificate
    with pytest.raises(x509.ExtensionNotFound), foreign_certificates.translated():
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
