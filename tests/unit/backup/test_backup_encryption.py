"""The age layer: only its recipients open it, and nothing but the whole of it is taken."""

import io
import pathlib
from collections.abc import Iterator

import pytest

from platform_server.backup import contents, encryption, failures
from runtime_kit import locked_key
from runtime_kit import secret as secret_kit
from tests.support import backups

PLAIN = bytes(range(256)) * 800  # three age chunks and some


def _encrypted(*pairs: backups.Pair) -> bytes:
    written: list[bytes] = []
    encryption.encrypt(
        iter([PLAIN[:1], b"", PLAIN[1:]]),
        recipients=encryption.parse_recipients([pair.recipient for pair in pairs]),
        write=written.append,
    )
    return b"".join(written)


def _decrypted(content: bytes, key: encryption.Key) -> bytes:
    with encryption.opened(io.BytesIO(content), key=key) as read:
        return b"".join(iter(lambda: read(10_000), b""))


def test_each_of_several_recipients_opens_it() -> None:
    first, second = backups.new_pair(), backups.new_pair()
    content = _encrypted(first, second)
    assert _decrypted(content, first.key) == _decrypted(content, second.key) == PLAIN


def test_who_is_no_recipient_is_told_so() -> None:
    with pytest.raises(failures.WrongKey, match="none of this backup's recipients"):
        _decrypted(_encrypted(backups.new_pair()), backups.new_pair().key)


def test_cut_anywhere_it_is_damaged() -> None:
    pair = backups.new_pair()
    content = _encrypted(pair)
    header = content.index(b"\n---") + 60
    chunk = 65_536 + 16
    cuts = [1, 21, 22, 40, header, header + 16, *range(header + 16, len(content), chunk // 3)]
    cuts += [header + 16 + number * chunk + more for number in range(3) for more in (-1, 0, 1)]
    for cut in {*cuts, len(content) - 1}:
        with pytest.raises(failures.Damaged):
            _decrypted(content[:cut], pair.key)


def test_a_changed_byte_is_damaged() -> None:
    pair = backups.new_pair()
    content = bytearray(_encrypted(pair))
    for place in (60, 150, len(content) // 2, len(content) - 1):
        content[place] ^= 1
        with pytest.raises((failures.Damaged, failures.WrongKey)):
            _decrypted(bytes(content), pair.key)
        content[place] ^= 1


@pytest.mark.parametrize("content", [b"SQLite format 3\x00", b"hello", b"\x00" * 5000])
def test_another_file_is_no_backup(content: bytes) -> None:
    with pytest.raises(failures.NoBackup):
        _decrypted(content, backups.new_pair().key)


@pytest.mark.parametrize("content", [b"", b"age-encr", locked_key.BEGIN, locked_key.BEGIN[:9]])
def test_the_beginning_of_a_backup_is_one_that_was_cut_off(content: bytes) -> None:
    with pytest.raises(failures.Damaged):
        _decrypted(content, backups.new_pair().key)


def test_the_wrong_kind_of_key_is_told_from_a_wrong_key() -> None:
    locked = locked_key.BEGIN + b"x\n-----END AGE ENCRYPTED FILE-----\n"
    with pytest.raises(failures.WrongKey, match="--passphrase-file"):
        _decrypted(locked + b"rest", backups.new_pair().key)
    with pytest.raises(failures.WrongKey, match="--identity-file"):
        _decrypted(
            _encrypted(backups.new_pair()), encryption.Passphrase(secret_kit.Secret("words"))
        )


def test_a_reader_that_leaves_early_ends_the_thread() -> None:
    pair = backups.new_pair()
    with encryption.opened(io.BytesIO(_encrypted(pair) * 1), key=pair.key) as read:
        assert read(10) == PLAIN[:10]


def test_what_fails_while_it_is_encrypted_is_raised_as_it_was() -> None:
    def failing() -> Iterator[bytes]:
        yield b"some"
        raise LookupError("the store went away")

    recipients = encryption.parse_recipients([backups.new_pair().recipient])
    with pytest.raises(LookupError, match="went away"):
        encryption.encrypt(failing(), recipients=recipients, write=lambda _piece: None)

    def full(_piece: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        encryption.encrypt(iter([PLAIN]), recipients=recipients, write=full)


def test_a_secret_key_given_as_recipient_is_not_repeated() -> None:
    pair = backups.new_pair()
    with pytest.raises(failures.Invalid) as raised:
        encryption.parse_recipients([pair.secret])
    assert pair.secret[8:] not in str(raised.value)
    for wrong in ([], [pair.recipient] * 17, [""], [pair.recipient[:-1]], ["ssh-ed25519 AAAA"]):
        with pytest.raises(failures.Invalid):
            encryption.parse_recipients(wrong)


@pytest.mark.parametrize("text", ["", "# nothing\n", "AGE-SECRET-KEY-1QQQ", "age1xyz"])
def test_what_is_no_identity_file_is_refused_without_its_content(text: str) -> None:
    with pytest.raises(failures.Invalid) as raised:
        encryption.Identities(secret_kit.Secret(text))
    assert "QQQ" not in str(raised.value)


def test_a_file_that_is_not_there_is_told_from_one_that_cannot_be_read(
    tmp_path: pathlib.Path,
) -> None:
    with pytest.raises(failures.NotFound):
        contents.verify(tmp_path / "none", key=backups.new_pair().key)
    with pytest.raises(failures.NoBackup):
        contents.verify(tmp_path, key=backups.new_pair().key)


def test_neither_key_prints_itself() -> None:
    pair = backups.new_pair()
    assert pair.secret not in repr(pair)
    assert pair.secret not in repr(pair.key)
