"""When trust keys come and go, as a table; and the certificates they stand behind."""

import dataclasses
import datetime
import pathlib

import pytest
from cryptography import x509
from cryptography.x509 import oid

from platform_server.trust import client_certificate, keys, rotation
from tests.support import domain
from wire_protocol import ids

NOW = domain.START
PLATFORM = ids.PlatformId("p-test")


def _days(number: float) -> datetime.timedelta:
    return datetime.timedelta(days=number)


def _key(*, begins: float, ends: float) -> keys.OwnTrustKey:
    made = keys.make(now=NOW + _days(ends) - keys.LIFETIME)
    return dataclasses.replace(
        made, public=dataclasses.replace(made.public, not_before=NOW + _days(begins))
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Case:
    windows: tuple[tuple[float, float], ...]
    make_key: bool
    look_again_days: float


CASES = {
    "a new Platform makes its first key": _Case(
        windows=(), make_key=True, look_again_days=365 - 30
    ),
    "a young key is left alone until 30 days before its end": _Case(
        windows=((-1, 364),), make_key=False, look_again_days=334
    ),
    "31 days before the end nothing happens yet": _Case(
        windows=((-334, 31),), make_key=False, look_again_days=1
    ),
    "30 days before the end the next key is published": _Case(
        windows=((-335, 30),), make_key=True, look_again_days=30
    ),
    "with the next key there, nothing happens until the old one ends": _Case(
        windows=((-336, 29), (-1, 364)), make_key=False, look_again_days=29
    ),
    "a key that ended counts for nothing": _Case(
        windows=((-366, -1), (-30, 335)), make_key=False, look_again_days=305
    ),
    "a Platform that slept through the end makes a new key": _Case(
        windows=((-400, -35),), make_key=True, look_again_days=335
    ),
    "a key born in the future (a clock was ahead) does not count as valid": _Case(
        windows=((1, 366),), make_key=True, look_again_days=335
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_rotation_is_planned_by_the_keys_that_are_there(case: _Case) -> None:
    present = [_key(begins=begins, ends=ends).public for begins, ends in case.windows]
    plan = rotation.plan(present, now=NOW)
    assert plan.make_key is case.make_key
    assert abs(plan.look_again_at - (NOW + _days(case.look_again_days))) < _days(0.01)


def test_a_trust_key_certificate_is_a_ca_of_path_length_0_with_the_window_of_the_key() -> None:
    key = keys.make(now=NOW).public
    certificate = x509.load_pem_x509_certificate(key.certificate_pem.encode())
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert not usage.value.digital_signature
    assert certificate.not_valid_before_utc == key.not_before
    assert certificate.not_valid_after_utc == key.not_after
    assert key.not_before <= NOW - datetime.timedelta(minutes=59)


def test_the_client_certificate_says_what_an_agent_asks_for(tmp_path: pathlib.Path) -> None:
    key = keys.make(now=NOW)
    identity = client_certificate.ClientIdentity(tmp_path / "client.pem")
    identity.ensure([key], platform_id=PLATFORM, now=NOW)
    _, certificate = _stored(identity)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [
        f"enlist:platform:{PLATFORM}"
    ]
    assert list(usages) == [oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    assert certificate.not_valid_after_utc - NOW == _days(7)
    assert certificate.not_valid_before_utc <= NOW - datetime.timedelta(minutes=59)
    above = x509.load_pem_x509_certificate(key.public.certificate_pem.encode())
    certificate.verify_directly_issued_by(above)
    assert identity.pem_file.stat().st_mode & 0o777 == 0o600


ISSUERS = {
    "the only key": (((-1, 364),), 0),
    "the oldest of two": (((-340, 25), (-5, 360)), 0),
    "not one that has ended": (((-366, -1), (-31, 334)), 1),
    "not one that ends within the hour": (((-365, 0.02), (-30, 335)), 1),
    "one that ends within the hour if it is alone": (((-365, 0.02),), 0),
}


@pytest.mark.parametrize(("windows", "chosen"), ISSUERS.values(), ids=ISSUERS.keys())
def test_the_issuer_is(windows: tuple[tuple[float, float], ...], chosen: int) -> None:
    own = [_key(begins=begins, ends=ends) for begins, ends in windows]
    assert client_certificate.choose_issuer(own, now=NOW) is own[chosen]


def test_without_a_valid_trust_key_no_client_certificate_is_issued() -> None:
    with pytest.raises(ValueError, match="No trust key is valid"):
        client_certificate.choose_issuer([_key(begins=-366, ends=-1)], now=NOW)


def test_the_client_certificate_is_renewed_before_its_end_and_kept_until_then(
    tmp_path: pathlib.Path,
) -> None:
    key = keys.make(now=NOW)
    identity = client_certificate.ClientIdentity(tmp_path / "client.pem")
    first = identity.ensure([key], platform_id=PLATFORM, now=NOW)
    assert identity.ensure([key], platform_id=PLATFORM, now=NOW + _days(4.9)) is first
    second = identity.ensure([key], platform_id=PLATFORM, now=NOW + _days(5.1))
    assert second.not_after == NOW + _days(12.1)


def test_a_certificate_ends_with_its_issuer_and_the_next_key_takes_over(
    tmp_path: pathlib.Path,
) -> None:
    old, new = _key(begins=-363, ends=2), _key(begins=-28, ends=337)
    identity = client_certificate.ClientIdentity(tmp_path / "client.pem")
    first = identity.ensure([old, new], platform_id=PLATFORM, now=NOW)
    assert (first.issuer, first.not_after) == (old.public.key_id, old.public.not_after)
    assert identity.ensure([old, new], platform_id=PLATFORM, now=NOW + _days(1.9)) is first
    second = identity.ensure([old, new], platform_id=PLATFORM, now=NOW + _days(1.97))
    assert second.issuer == new.public.key_id


def _stored(identity: client_certificate.ClientIdentity) -> tuple[bytes, x509.Certificate]:
    content = identity.pem_file.read_bytes()
    return content, x509.load_pem_x509_certificates(content)[0]
