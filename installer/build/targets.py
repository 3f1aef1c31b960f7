"""Where a release is uploaded to: a folder, an https address that takes PUT, or an S3 store.

A target reads back what it already lists and takes files one by one, each in one step. Its two
failures are told apart for the one loop that repeats (`upload.py`): refused, and try again.
https alone, with the system's roots or a CA file; redirects are not followed.
Known limit: no proxies, and no multipart: one file is one request, 5 GB at most on S3.
"""

import contextlib
import errno
import hashlib
import http.client
import pathlib
import ssl
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Final, Protocol

from installer.build import folder as release_folder
from installer.build import sigv4
from runtime_kit import clock
from runtime_kit.secret import Secret

_SECONDS: Final = 60  # of silence on one connection, not of a whole upload
_MOST_SAID: Final = 2048
_NOTHING: Final = hashlib.sha256(b"").hexdigest()


class UploadRefused(Exception):
    """The target will not take it, and trying again will not help."""


class UploadFailed(Exception):
    """The target did not take it this time."""


class Target(Protocol):
    """Somewhere that files of a release can be put."""

    def get(self, name: str, *, most_bytes: int) -> bytes | None:
        """What is there under this name, or None."""
        ...

    def put(self, name: str, path: pathlib.Path) -> None:
        """Put a file there, replacing what was; repeatable."""
        ...


class FolderTarget:
    """A folder, perhaps mounted from elsewhere."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def get(self, name: str, *, most_bytes: int) -> bytes | None:
        """What is there under this name, or None."""
        try:
            with (self._folder / name).open("rb") as file:
                return _bounded(file, most_bytes=most_bytes, where=f"{self._folder / name}")
        except FileNotFoundError:
            return None

    def put(self, name: str, path: pathlib.Path) -> None:
        """Copy the file aside and rename it into its place."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            release_folder.put_file(path, self._folder / name)
        except OSError as error:
            kind = UploadFailed if error.errno in (errno.EIO, errno.ESTALE) else UploadRefused
            raise kind(f"Could not write {self._folder / name}: {error.strerror}.") from error


# Headers for a request: method, host, path, SHA-256 of its body.
Authorize = Callable[[str, str, str, str], Mapping[str, str]]


class WebTarget:
    """An https address below which files are put."""

    def __init__(
        self, url: str, *, authorize: Authorize, ca_file: pathlib.Path | None = None
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
            raise UploadRefused(f"{url} is no plain https address to upload to.")
        if parts.username or parts.password:
            raise UploadRefused("An upload address holds no password: use --upload-token-file.")
        try:
            self._port = parts.port or http.client.HTTPS_PORT
            self._context = ssl.create_default_context(cafile=ca_file)
        except (OSError, ValueError) as error:
            raise UploadRefused(f"Cannot upload to {url}: {error}.") from error
        self._host = parts.hostname
        # As it stands in the Host header, which is signed: the port only where it is unusual.
        self._named = parts.netloc if self._port != http.client.HTTPS_PORT else parts.hostname
        self._folder = [piece for piece in parts.path.split("/") if piece]
        self._authorize = authorize

    def get(self, name: str, *, most_bytes: int) -> bytes | None:
        """What is there under this name, or None."""
        with self._asked("GET", name, body=None, sha256=_NOTHING) as answer:
            if answer.status == http.HTTPStatus.NOT_FOUND:
                return None
            _check(answer, doing=f"read {name}")
            return _bounded(answer, most_bytes=most_bytes, where=name)

    def put(self, name: str, path: pathlib.Path) -> None:
        """Send the file in one request."""
        sha256 = release_folder.hash_of(path)
        with (
            path.open("rb") as body,
            self._asked("PUT", name, body=body, sha256=sha256) as answer,
        ):
            _check(answer, doing=f"put {name}")

    @contextlib.contextmanager
    def _asked(
        self, method: str, name: str, *, body: BinaryIO | None, sha256: str
    ) -> Iterator[http.client.HTTPResponse]:
        path = sigv4.path_of(*self._folder, name)
        size = 0 if body is None else body.seek(0, 2)
        sent = {
            **self._authorize(method, self._named, path, sha256),
            "host": self._named,
            "content-length": str(size),
            "content-type": "application/octet-stream",
        }
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=_SECONDS, context=self._context
        )
        try:
            if body is not None:
                body.seek(0)
            connection.request(method, path, body=body, headers=sent)
            yield connection.getresponse()
        except ssl.SSLCertVerificationError as error:
            raise UploadRefused(
                f"{self._named} shows a certificate that is not trusted here "
                f"({error.verify_message}); name its CA with --ca-file."
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise UploadFailed(f"No whole answer from {self._named}: {error}.") from error
        finally:
            connection.close()


def with_token(token: Secret | None) -> Authorize:
    """Authorize by a bearer token, or not at all."""

    def authorize(_method: str, _host: str, _path: str, _sha256: str) -> Mapping[str, str]:
        return {} if token is None else {"authorization": f"Bearer {token.reveal()}"}

    return authorize


def with_keys(keys: sigv4.Keys, *, clock: clock.Clock) -> Authorize:
    """Authorize by Signature Version 4."""

    def authorize(method: str, host: str, path: str, sha256: str) -> Mapping[str, str]:
        return sigv4.headers(
            method, host=host, path=path, payload_sha256=sha256, keys=keys, now=clock.now()
        )

    return authorize


def s3_url(target: str, *, region: str, endpoint: str | None) -> str:
    """The https address of `s3://BUCKET/PREFIX`.

    AWS itself is addressed by the bucket's own host, other stores by a path: few of those have a
    certificate for every bucket. A bucket with a dot has none at AWS either.
    """
    bucket, _, prefix = target.removeprefix("s3://").partition("/")
    if not bucket:
        raise UploadRefused(f"{target} names no bucket: s3://BUCKET/PREFIX")
    if endpoint is None and "." not in bucket:
        return f"https://{bucket}.s3.{region}.amazonaws.com/{prefix}"
    base = (endpoint or f"https://s3.{region}.amazonaws.com").rstrip("/")
    return f"{base}/{bucket}/{prefix}"


def _check(answer: http.client.HTTPResponse, *, doing: str) -> None:
    status = answer.status
    if http.HTTPStatus.OK <= status < http.HTTPStatus.MULTIPLE_CHOICES:
        return
    said = answer.read(_MOST_SAID).decode(errors="replace")
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in said).split())
    sentence = f"Could not {doing}: the target answered {status} {answer.reason}. {plain[:400]}"
    if (
        status == http.HTTPStatus.TOO_MANY_REQUESTS
        or status >= http.HTTPStatus.INTERNAL_SERVER_ERROR
    ):
        raise UploadFailed(sentence)
    raise UploadRefused(sentence)


def _bounded(file: BinaryIO | http.client.HTTPResponse, *, most_bytes: int, where: str) -> bytes:
    data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise UploadRefused(f"{where} at the target is longer than {most_bytes} bytes.")
    return data
