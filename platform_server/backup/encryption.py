"""The age layer around a backup: encrypted to recipients, opened by an identity or a passphrase.

The library (pyrage) reads and writes through Python objects in one call, so it runs in a thread of
its own; here are the two ends that the rest holds. Nothing is given out before it is proven to be
what was encrypted, piece by piece; that it is whole is known at the end.

Known limit: age proves that a file was not changed, not who made it: whoever knows a recipient can
encrypt to it (docs/threats.md).
"""

import contextlib
import io
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Final, Protocol, cast

import pyrage

from platform_server.backup import failures
from runtime_kit import locked_key
from runtime_kit import secret as secret_kit

MOST_RECIPIENTS: Final = 16
_MAGIC: Final = b"age-encryption.org/v1\n"
_AHEAD: Final = 16  # decrypted pieces of 8 KiB that wait to be read
_STEP_SECONDS: Final = 0.2

Recipient = pyrage.x25519.Recipient
Told = Callable[[int], None]
"""Hears how many bytes of the file were read just now; from the decrypting thread."""


def tell_nobody(_count: int) -> None:
    """For readers that show no progress."""


class Key(Protocol):
    """What opens a backup."""

    def identities(self, locked: bytes | None) -> Sequence[pyrage.x25519.Identity]:
        """The identities, given the locked key before the file if there is one.

        Raises `WrongKey`.
        """
        ...


class Identities:
    """The secret halves of recipients."""

    def __init__(self, text: secret_kit.Secret) -> None:
        """Reads an identity file as `age-keygen` writes it; raises `Invalid`."""
        lines = [line.strip() for line in text.reveal().splitlines()]
        self._identities = [_identity(line) for line in lines if line and not line.startswith("#")]
        if not self._identities:
            raise failures.Invalid("The identity file holds no AGE-SECRET-KEY-1… line.")

    def identities(self, locked: bytes | None) -> Sequence[pyrage.x25519.Identity]:
        """Those of the file."""
        if locked is not None:
            raise failures.WrongKey(
                "This backup was made with a passphrase, not to a recipient: give it with "
                "--passphrase-file."
            )
        return self._identities


class Passphrase:
    """A passphrase."""

    def __init__(self, passphrase: secret_kit.Secret) -> None:
        self._passphrase = passphrase

    def identities(self, locked: bytes | None) -> Sequence[pyrage.x25519.Identity]:
        """The one that the passphrase unlocks."""
        if locked is None:
            raise failures.WrongKey(
                "This backup was made to a recipient, not with a passphrase: give the recipient's "
                "secret key with --identity-file."
            )
        try:
            text = locked_key.unlock(locked, passphrase=self._passphrase)
        except locked_key.Unopenable:
            raise failures.WrongKey("The passphrase does not open this backup.") from None
        return [_identity(text.reveal())]


def parse_recipients(texts: Sequence[str]) -> list[Recipient]:
    """The recipients, `age1…` each; raises `Invalid`, naming what is none."""
    if not 1 <= len(texts) <= MOST_RECIPIENTS:
        raise failures.Invalid(f"A backup is encrypted to 1 to {MOST_RECIPIENTS} recipients.")
    found = []
    for text in texts:
        try:
            found.append(Recipient.from_str(text))
        except (pyrage.RecipientError, ValueError):
            # never repeated in full: it may be a secret key that was given by mistake
            raise failures.Invalid(
                f"{text[:8]!r}… is no recipient: it is age1 and 58 more characters, as age-keygen "
                "prints it."
            ) from None
    return found


def encrypt(
    plain: Iterator[bytes], *, recipients: Sequence[Recipient], write: Callable[[bytes], None]
) -> None:
    """Encrypts what comes to its end; for a thread. Raises what `plain` or `write` raise."""
    source, sink = _Source(plain), _Sink(write)
    try:
        pyrage.encrypt_io(_as_file(source), _as_file(sink), recipients)
    except BaseException:
        raise_first(source.fault, sink.fault)
        raise


@contextlib.contextmanager
def opened(
    file: BinaryIO, *, key: Key, told: Told = tell_nobody
) -> Iterator[Callable[[int], bytes]]:
    """Gives `read(n)` for the decrypted content; none at its end, which proves it whole.

    Raises `NoBackup`, `WrongKey` and `Damaged`, here or from `read`.
    """
    locked = _locked(file)
    identities = key.identities(locked)
    pipe = _Pipe()
    source = _Reading(file, told=told)

    def run() -> None:
        try:
            pyrage.decrypt_io(_as_file(source), _as_file(_Sink(pipe.put)), identities)
            pipe.finish(None)
        except BaseException as fault:  # noqa: BLE001 - it belongs to whoever reads
            pipe.finish(source.fault or _meaning(fault))

    thread = threading.Thread(target=run, name="backup-decrypt", daemon=True)
    thread.start()
    try:
        yield pipe.read
    finally:
        pipe.abandon()
        thread.join()


def raise_first(*faults: BaseException | None) -> None:
    """Raises the first of these that happened; the library hides it in an error of its own."""
    for fault in faults:
        if fault is not None:
            raise fault


def _locked(file: BinaryIO) -> bytes | None:
    """Reads past the locked key if there is one; raises `NoBackup`."""
    start = file.read(locked_key.MOST_BYTES)
    if start.startswith(_MAGIC):
        file.seek(0)
        return None
    try:
        length = locked_key.split(start)
    except locked_key.OutOfShape:
        begins = start and (_MAGIC.startswith(start) or start.startswith(locked_key.BEGIN))
        if begins or locked_key.BEGIN.startswith(start or b"-"):
            raise failures.Damaged("The backup ends too early: it was cut off.") from None
        raise failures.NoBackup("The file is no backup: it is not in the age format.") from None
    file.seek(length)
    return start[:length]


def _identity(text: str) -> pyrage.x25519.Identity:
    try:
        return pyrage.x25519.Identity.from_str(text)
    except (pyrage.IdentityError, ValueError):
        raise failures.Invalid(
            "The identity file holds a line that is no AGE-SECRET-KEY-1… and no comment."
        ) from None


def _meaning(fault: BaseException) -> BaseException:
    if isinstance(fault, pyrage.DecryptError) and "No matching keys" in str(fault):
        return failures.WrongKey("The identity is none of this backup's recipients.")
    if isinstance(fault, pyrage.DecryptError | OSError):
        return failures.Damaged("The backup is damaged or was cut off: it does not decrypt.")
    return fault


def _as_file(one: "_Source | _Sink | _Reading") -> io.BufferedIOBase:
    return cast("io.BufferedIOBase", one)  # the library calls read, write and flush, nothing else


class _Source:
    """An iterator of bytes as a file to read."""

    def __init__(self, plain: Iterator[bytes]) -> None:
        self._plain = plain
        self._waiting = memoryview(b"")
        self.fault: BaseException | None = None

    def read(self, most: int) -> bytes:
        try:
            while not self._waiting:
                self._waiting = memoryview(next(self._plain))
        except StopIteration:
            return b""
        except BaseException as fault:
            self.fault = fault
            raise
        given, self._waiting = bytes(self._waiting[:most]), self._waiting[most:]
        return given


class _Reading:
    """A file whose faults are kept."""

    def __init__(self, file: BinaryIO, *, told: Told) -> None:
        self._file = file
        self._told = told
        self.fault: BaseException | None = None

    def read(self, most: int) -> bytes:
        try:
            piece = self._file.read(most)
        except OSError as fault:
            self.fault = fault
            raise
        self._told(len(piece))
        return piece


class _Sink:
    """A function as a file to write."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self.fault: BaseException | None = None

    def write(self, data: bytes) -> int:
        try:
            self._write(bytes(data))
        except BaseException as fault:
            self.fault = fault
            raise
        return len(data)

    def flush(self) -> None:
        """Nothing waits here."""


class _Abandoned(Exception):
    """Whoever read has left."""


class _Pipe:
    """Bounded, from the decrypting thread to the one that reads."""

    def __init__(self) -> None:
        self._pieces: queue.Queue[bytes | None] = queue.Queue(maxsize=_AHEAD)
        self._fault: BaseException | None = None
        self._abandoned = threading.Event()
        self._ended = False
        self._waiting = b""

    def put(self, piece: bytes | None) -> None:
        while not self._abandoned.is_set():
            try:
                self._pieces.put(piece, timeout=_STEP_SECONDS)
            except queue.Full:
                continue
            return
        raise _Abandoned

    def finish(self, fault: BaseException | None) -> None:
        self._fault = fault
        with contextlib.suppress(_Abandoned):
            self.put(None)

    def abandon(self) -> None:
        self._abandoned.set()

    def read(self, most: int) -> bytes:
        while not self._waiting and not self._ended:
            piece = self._pieces.get()
            if piece is None:
                self._ended = True
            else:
                self._waiting = piece
        if not self._waiting and self._fault is not None:
            raise self._fault
        given, self._waiting = self._waiting[:most], self._waiting[most:]
        return given
