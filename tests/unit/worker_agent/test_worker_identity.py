"""The identity on disk: found for what it is, made where missing, never made anew over a key."""

import datetime
import ipaddress
import os
import pathlib
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509 import oid

from wire_protocol import enrollment, ids
from worker_agent.identity import certificates, own, states
from worker_agent.settings import failures, modes, paths

NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
NODE = ids.NodeId("web-1")


@pytest.fixture
def where(tmp_path: pathlib.Path) -> paths.Paths:
    found = paths.Paths(folder=tmp_path / "worker")
    for folder in (found.folder, found.identity):
        folder.mkdir(mode=0o700)
    return found


def put(path: pathlib.Path, content: bytes, *, mode: int = 0o600) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
    path.chmod(mode)


def made(where: paths.Paths, *addresses: str) -> own.Identity:
    warned: list[str] = []
    return own.ensure(where, node_id=NODE, addresses=addresses, now=NOW, warn=warned.append)


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


KEY = certificates.new_key()
OTHER = certificates.new_key()
KEY_PEM = certificates.key_pem(KEY)
CERTIFICATE_PEM = pem(certificates.self_signed(KEY, node_id=NODE, addresses=(), now=NOW))
OTHER_CERTIFICATE = pem(certificates.self_signed(OTHER, node_id=NODE, addresses=(), now=NOW))
RSA_PEM = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)
P384_PEM = certificates.key_pem(ec.generate_private_key(ec.SECP384R1()))

FOUND: dict[str, tuple[bytes | None, bytes | None, states.State]] = {
    "nothing": (None, None, states.State.FRESH),
    "an empty key": (b"", None, states.State.FRESH),
    "a key of blanks": (b"\n \n", None, states.State.FRESH),
    "two empty files": (b"", b"", states.State.FRESH),
    "a key alone": (KEY_PEM, None, states.State.KEYED),
    "a key with an empty certificate": (KEY_PEM, b"", states.State.KEYED),
    "a key with a cut certificate": (KEY_PEM, CERTIFICATE_PEM[:90], states.State.KEYED),
    "both": (KEY_PEM, CERTIFICATE_PEM, states.State.CERTIFIED),
    "a cut key": (KEY_PEM[:90], CERTIFICATE_PEM, states.State.DAMAGED),
    "garbage": (b"\x00" * 32, None, states.State.DAMAGED),
    "an RSA key": (RSA_PEM, None, states.State.DAMAGED),
    "a key on another curve": (P384_PEM, None, states.State.DAMAGED),
    "a certificate without its key": (None, CERTIFICATE_PEM, states.State.DAMAGED),
    "another key's certificate": (KEY_PEM, OTHER_CERTIFICATE, states.State.DAMAGED),
    "a key far too long": (b"x" * 20_000, None, states.State.DAMAGED),
}


@pytest.mark.parametrize("case", FOUND)
def test_looking_names_the_state_and_changes_nothing(where: paths.Paths, case: str) -> None:
    key, certificate, state = FOUND[case]
    for path, content in ((where.key, key), (where.certificate, certificate)):
        if content is not None:
            put(path, content)
    before = {path: path.read_bytes() for path in where.identity.iterdir()}
    found = own.look(where)
    assert found.state is state
    assert (found.fault is None) == (case in ("nothing", "a key alone", "both"))
    assert {path: path.read_bytes() for path in where.identity.iterdir()} == before
    assert "PRIVATE" not in repr(found)


@pytest.mark.parametrize("case", [case for case in FOUND if FOUND[case][2] != "damaged"])
def test_what_is_missing_is_made_and_a_real_key_stays(where: paths.Paths, case: str) -> None:
    key, certificate, _ = FOUND[case]
    for path, content in ((where.key, key), (where.certificate, certificate)):
        if content is not None:
            put(path, content)
    identity = made(where, "192.0.2.7")
    assert own.look(where).state is states.State.CERTIFIED
    if key == KEY_PEM:
        assert where.key.read_bytes() == KEY_PEM
    assert identity.certificate.public_key() == identity.key.public_key()


@pytest.mark.parametrize("case", [case for case in FOUND if FOUND[case][2] == "damaged"])
def test_what_may_be_a_real_key_is_left_alone(where: paths.Paths, case: str) -> None:
    key, certificate, _ = FOUND[case]
    for path, content in ((where.key, key), (where.certificate, certificate)):
        if content is not None:
            put(path, content)
    before = {path: path.read_bytes() for path in where.identity.iterdir()}
    with pytest.raises(failures.NeedsOperator, match="mv "):
        made(where)
    assert {path: path.read_bytes() for path in where.identity.iterdir()} == before


def test_making_it_again_gives_the_very_same(where: paths.Paths) -> None:
    first = made(where, "192.0.2.7")
    again = made(where, "192.0.2.7")
    assert again.certificate == first.certificate
    assert again.pin == first.pin


def test_other_addresses_give_another_certificate_with_the_same_pin(where: paths.Paths) -> None:
    first = made(where, "192.0.2.7")
    moved = made(where, "192.0.2.8")
    assert moved.certificate != first.certificate
    assert moved.pin == first.pin


@pytest.mark.parametrize("umask", [0, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: pathlib.Path, umask: int) -> None:
    where = paths.Paths(folder=tmp_path)
    before = os.umask(umask)
    try:
        made(where)
    finally:
        os.umask(before)
    assert stat.S_IMODE(where.identity.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in where.identity.iterdir()} == {0o600}


def test_the_certificate_is_what_the_platform_takes(where: paths.Paths) -> None:
    addresses = [f"host-{number}.some-long-domain-name.example.com" for number in range(16)]
    certificate = made(where, "192.0.2.7", "2001:db8::7", *addresses[:14]).certificate
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert certificate.not_valid_before_utc == NOW - datetime.timedelta(hours=1)
    assert certificate.not_valid_after_utc == NOW + datetime.timedelta(days=90)
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("192.0.2.7"),
        ipaddress.ip_address("2001:db8::7"),
    ]
    assert names.get_values_for_type(x509.DNSName)[0] == "web-1"
    assert set(usages) == {
        oid.ExtendedKeyUsageOID.SERVER_AUTH,
        oid.ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    certificate.verify_directly_issued_by(certificate)
    assert len(pem(certificate)) <= enrollment.MAX_CERTIFICATE_BYTES


def test_the_longest_node_id_fits_into_a_certificate() -> None:
    longest = ids.parse_node_id("a" * 63)
    certificates.self_signed(KEY, node_id=longest, addresses=(), now=NOW)


def test_a_lax_file_is_closed_with_a_warning_that_names_it(where: paths.Paths) -> None:
    put(where.key, KEY_PEM, mode=0o640)
    warned: list[str] = []
    modes.tighten(where, warn=warned.append)
    assert stat.S_IMODE(where.key.stat().st_mode) == 0o600
    assert len(warned) == 1
    assert "0640" in warned[0]


def test_a_symbolic_link_in_place_of_a_private_file_is_refused(
    where: paths.Paths, tmp_path: pathlib.Path
) -> None:
    put(tmp_path / "elsewhere", KEY_PEM)
    where.key.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(failures.NeedsOperator, match="symbolic link"):
        modes.tighten(where, warn=print)


def test_a_key_that_others_may_read_is_no_key_before_it_is_closed(where: paths.Paths) -> None:
    put(where.key, KEY_PEM, mode=0o644)
    assert own.look(where).state is states.State.DAMAGED


LOADING: dict[str, str] = {
    "nothing": "enlist worker join -",
    "an empty key": "enlist worker join -",
    "a key with an empty certificate": "enlist worker join -",
    "a cut key": "mv ",
    "another key's certificate": "mv ",
}


@pytest.mark.parametrize("case", LOADING)
def test_an_agent_without_its_identity_is_told_what_helps(where: paths.Paths, case: str) -> None:
    key, certificate, _ = FOUND[case]
    for path, content in ((where.key, key), (where.certificate, certificate)):
        if content is not None:
            put(path, content)
    with pytest.raises(failures.NeedsOperator) as raised:
        own.load(where)
    assert LOADING[case] in str(raised.value)
