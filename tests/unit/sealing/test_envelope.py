"""Envelopes: what opens, what does not, and what a new master key leaves alone."""

import pytest

from platform_server.sealing import envelope


def _ring() -> envelope.Keyring:
    key = envelope.new_key()
    return envelope.Keyring([key], current=key.kek_id)


def test_opens_what_it_sealed() -> None:
    ring = _ring()
    assert ring.open(ring.seal(b"secret", name="a"), name="a") == b"secret"


def test_two_seals_of_one_value_have_nothing_in_common() -> None:
    ring = _ring()
    first, second = ring.seal(b"x" * 64, name="a"), ring.seal(b"x" * 64, name="a")
    head = 3 + 8
    assert first[:head] == second[:head]
    assert set(first[head + 24 : head + 72]) != set(second[head + 24 : head + 72])
    assert first[-64:] != second[-64:]


def test_a_value_moved_to_another_name_does_not_open() -> None:
    ring = _ring()
    with pytest.raises(envelope.CannotOpen):
        ring.open(ring.seal(b"secret", name="a"), name="b")


def test_no_bit_can_be_changed() -> None:
    ring = _ring()
    sealed = ring.seal(b"s", name="a")
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(envelope.CannotOpen):
            ring.open(bytes(changed), name="a")


@pytest.mark.parametrize("raw", [b"", b"es1", b"es1" + b"\0" * 50, b"\0" * 400])
def test_what_is_no_sealed_value_is_refused(raw: bytes) -> None:
    with pytest.raises(envelope.CannotOpen):
        _ring().open(raw, name="a")


def test_another_key_is_named() -> None:
    ring, other = _ring(), _ring()
    with pytest.raises(envelope.UnknownKey) as refused:
        other.open(ring.seal(b"s", name="a"), name="a")
    assert refused.value.kek_id == ring.current


def test_rewrapping_changes_the_key_and_keeps_the_ciphertext() -> None:
    ring, new = _ring(), envelope.new_key()
    sealed = ring.seal(b"secret", name="a")
    ring.adopt(new)
    rewrapped = ring.rewrap(sealed)
    assert envelope.kek_id_of(rewrapped) == new.kek_id
    assert rewrapped[-(24 + 16 + 6) :] == sealed[-(24 + 16 + 6) :]
    ring.forget_others()
    assert ring.open(rewrapped, name="a") == b"secret"
    with pytest.raises(envelope.UnknownKey):
        ring.open(sealed, name="a")


def test_a_key_does_not_print() -> None:
    key = envelope.new_key()
    assert key.raw.hex() not in repr(key)
    assert repr(key.raw) not in repr(key)
