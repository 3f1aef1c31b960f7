"""Uploading to a folder and to stores over real TLS that judge what they are asked."""

import dataclasses
import hashlib
import pathlib

import pytest

from installer import release as release_format
from installer.build import bundle, folder, signing, sigv4, targets, upload
from runtime_kit import clock, retry
from runtime_kit.secret import Secret
from tests.support import object_store

KEYS = sigv4.Keys(access_key="AKTEST", secret_key=Secret("made up"), region="eu-test-1")
STORE_KEYS = {"AKTEST": "made up"}


class NoWaits:
    """Counts the waits and returns at once."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def monotonic(self) -> float:
        return 0.0

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)


@pytest.fixture
def key(tmp_path: pathlib.Path) -> signing.ReleaseKey:
    return signing.make(tmp_path / "release.key")


def built(version: str = "1.2.3", *, payload: bytes = b"payload") -> bundle.Built:
    """An archive in all but its inside, which no upload looks at."""
    release = release_format.Release(
        role="worker",
        version=version,
        arch="x86_64",
        pythons=("3.11",),
        commit="a" * 40,
        made_at="2026-01-31T12:00:00Z",
        payload_sha256=hashlib.sha256(payload).hexdigest(),
    )
    return bundle.Built(release=release, data=payload, install_sh=b"#!/bin/sh\n")


def released(
    path: pathlib.Path, key: signing.ReleaseKey, one: bundle.Built, *artifacts: pathlib.Path
) -> pathlib.Path:
    folder.write(path, [one], artifacts=artifacts, key=key, wrote=lambda _path: None)
    return path


def send(
    source: pathlib.Path, target: targets.Target, key: signing.ReleaseKey, waits: NoWaits
) -> list[str]:
    said: list[str] = []
    upload.upload(
        source,
        target,
        key=key,
        waits=waits,
        said=said.append,
        schedule=retry.Schedule(tries=4),
    )
    return said


def s3(store: object_store.Store, *, keys: sigv4.Keys = KEYS) -> targets.WebTarget:
    return targets.WebTarget(
        targets.s3_url("s3://bucket/enlist releases", region="eu-test-1", endpoint=store.url),
        authorize=targets.with_keys(keys, clock=clock.SystemClock()),
        ca_file=store.ca_file,
    )


def test_what_names_others_is_uploaded_after_them(
    tmp_path: pathlib.Path, key: signing.ReleaseKey
) -> None:
    kernel = tmp_path / "vmlinux-6.1"
    kernel.write_bytes(b"kernel")
    source = released(tmp_path / "dist", key, built(), kernel)
    with object_store.running(tmp_path, keys=STORE_KEYS) as store:
        said = send(source, s3(store), key, NoWaits())
    assert said == [
        "enlist-worker-1.2.3-x86_64.tar",
        "install.sh",
        "vmlinux-6.1",
        "SHA256SUMS",
        "SHA256SUMS.sig",
        "worker-x86_64",
    ]
    for path in source.iterdir():
        assert store.held[f"/bucket/enlist%20releases/{path.name}"] == path.read_bytes()


def test_a_wrong_key_is_refused_by_the_signature_and_tried_once(
    tmp_path: pathlib.Path, key: signing.ReleaseKey
) -> None:
    source = released(tmp_path / "dist", key, built())
    waits = NoWaits()
    wrong = dataclasses.replace(KEYS, secret_key=Secret("guessed"))
    with (
        object_store.running(tmp_path, keys=STORE_KEYS) as store,
        pytest.raises(targets.UploadRefused, match=r"403.*SignatureDoesNotMatch"),
    ):
        send(source, s3(store, keys=wrong), key, waits)
    assert (store.held, len(store.asked), waits.waited) == ({}, 1, [])


def test_a_body_changed_on_the_way_does_not_match_what_was_signed(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "kernel"
    path.write_bytes(b"kernel")

    def authorize(method: str, host: str, path: str, _sha256: str) -> dict[str, str]:
        other = hashlib.sha256(b"other").hexdigest()
        return dict(targets.with_keys(KEYS, clock=clock.SystemClock())(method, host, path, other))

    with object_store.running(tmp_path, keys=STORE_KEYS) as store:
        target = targets.WebTarget(store.url, authorize=authorize, ca_file=store.ca_file)
        with pytest.raises(targets.UploadRefused, match="XAmzContentSHA256Mismatch"):
            target.put("kernel", path)
    assert store.held == {}


def test_busy_answers_and_cut_connections_are_tried_again(
    tmp_path: pathlib.Path, key: signing.ReleaseKey
) -> None:
    source = released(tmp_path / "dist", key, built())
    waits = NoWaits()
    with object_store.running(tmp_path, keys=STORE_KEYS, busy=2) as store:
        store.cuts = 1
        send(source, s3(store), key, waits)
    assert len(waits.waited) == 3
    assert store.held["/bucket/enlist%20releases/worker-x86_64"]


def test_tries_end(tmp_path: pathlib.Path, key: signing.ReleaseKey) -> None:
    source = released(tmp_path / "dist", key, built())
    waits = NoWaits()
    with (
        object_store.running(tmp_path, busy=1000) as store,
        pytest.raises(targets.UploadFailed, match=r"503.*SlowDown"),
    ):
        send(source, s3(store), key, waits)
    assert len(waits.waited) == 3


def test_an_https_target_is_given_the_token(
    tmp_path: pathlib.Path, key: signing.ReleaseKey
) -> None:
    source = released(tmp_path / "dist", key, built())
    with object_store.running(tmp_path, token="made-up") as store:
        good = targets.with_token(Secret("made-up"))
        send(
            source,
            targets.WebTarget(store.url + "/r/", authorize=good, ca_file=store.ca_file),
            key,
            NoWaits(),
        )
        none = targets.with_token(None)
        with pytest.raises(targets.UploadRefused, match="403"):
            send(
                source,
                targets.WebTarget(store.url, authorize=none, ca_file=store.ca_file),
                key,
                NoWaits(),
            )
    assert {path.name for path in source.iterdir()} == {
        path.removeprefix("/r/") for path in store.held
    }


def test_a_certificate_that_is_not_trusted_is_sent_nothing(
    tmp_path: pathlib.Path, key: signing.ReleaseKey
) -> None:
    source = released(tmp_path / "dist", key, built())
    with object_store.running(tmp_path, token="made-up") as store:
        target = targets.WebTarget(store.url, authorize=targets.with_token(Secret("made-up")))
        with pytest.raises(targets.UploadRefused, match="name its CA with --ca-file"):
            send(source, target, key, NoWaits())
    assert store.asked == []


def test_a_redirect_is_not_followed(tmp_path: pathlib.Path, key: signing.ReleaseKey) -> None:
    source = released(tmp_path / "dist", key, built())
    with object_store.running(tmp_path, keys=STORE_KEYS) as store:
        store.redirect = f"{store.url}/elsewhere"
        with pytest.raises(targets.UploadRefused, match="307"):
            send(source, s3(store), key, NoWaits())
    assert len(store.asked) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/releases",
        "ftp://example.org",
        "https://",
        "https://user:secret@example.org/",
        "https://example.org/?x=1",
        "https://example.org:notaport/",
    ],
)
def test_an_address_that_is_no_plain_https_is_refused(url: str) -> None:
    with pytest.raises(targets.UploadRefused):
        targets.WebTarget(url, authorize=targets.with_token(None))


def target_of(kind: str, tmp_path: pathlib.Path, store: object_store.Store) -> targets.Target:
    return targets.FolderTarget(tmp_path / "mirror") if kind == "folder" else s3(store)


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_what_is_out_does_not_change(
    kind: str, tmp_path: pathlib.Path, key: signing.ReleaseKey
) -> None:
    first = released(tmp_path / "first", key, built())
    other = released(tmp_path / "other", key, built(payload=b"another"))
    with object_store.running(tmp_path, keys=STORE_KEYS) as store:
        target = target_of(kind, tmp_path, store)
        send(first, target, key, NoWaits())
        with pytest.raises(targets.UploadRefused, match="raise VERSION"):
            send(other, target, key, NoWaits())
        kept = target.get("enlist-worker-1.2.3-x86_64.tar", most_bytes=100)
    assert kept == b"payload"


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_a_later_version_stands_beside_the_earlier_in_one_signed_list(
    kind: str, tmp_path: pathlib.Path, key: signing.ReleaseKey
) -> None:
    with object_store.running(tmp_path, keys=STORE_KEYS) as store:
        target = target_of(kind, tmp_path, store)
        for version in ("1.2.3", "1.3.0"):
            source = released(tmp_path / version, key, built(version, payload=version.encode()))
            send(source, target, key, NoWaits())
        listed = target.get("SHA256SUMS", most_bytes=10_000)
        signature = target.get("SHA256SUMS.sig", most_bytes=64)
        latest = target.get("worker-x86_64", most_bytes=1000)
    assert listed is not None
    assert signature is not None
    assert latest is not None
    assert key.verify(listed, signature)
    assert {"enlist-worker-1.2.3-x86_64.tar", "enlist-worker-1.3.0-x86_64.tar"} <= set(
        release_format.parse_sums(listed)
    )
    assert release_format.parse_latest(latest)[1] == "enlist-worker-1.3.0-x86_64.tar"


def test_uploading_again_sends_only_the_lists(
    tmp_path: pathlib.Path, key: signing.ReleaseKey
) -> None:
    source = released(tmp_path / "dist", key, built())
    target = targets.FolderTarget(tmp_path / "mirror")
    send(source, target, key, NoWaits())
    assert send(source, target, key, NoWaits()) == ["SHA256SUMS", "SHA256SUMS.sig", "worker-x86_64"]


def test_an_upload_that_stopped_anywhere_is_finished_by_the_next(
    tmp_path: pathlib.Path, key: signing.ReleaseKey
) -> None:
    source = released(tmp_path / "dist", key, built())
    names = {path.name for path in source.iterdir()}
    for cut_after in range(8):
        with object_store.running(tmp_path, keys=STORE_KEYS) as store:
            target = _Stops(s3(store), after=cut_after)
            if cut_after < len(names):
                with pytest.raises(KeyboardInterrupt):
                    send(source, target, key, NoWaits())
            send(source, s3(store), key, NoWaits())
        assert {name.rpartition("/")[2] for name in store.held} == names


class _Stops:
    """A target whose uploader is stopped after some files."""

    def __init__(self, target: targets.Target, *, after: int) -> None:
        self._target = target
        self._left = after

    def get(self, name: str, *, most_bytes: int) -> bytes | None:
        return self._target.get(name, most_bytes=most_bytes)

    def put(self, name: str, path: pathlib.Path) -> None:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        self._target.put(name, path)


def test_aws_is_addressed_by_the_buckets_own_host_and_others_by_a_path() -> None:
    def url(target: str, endpoint: str | None = None) -> str:
        return targets.s3_url(target, region="eu-west-1", endpoint=endpoint)

    assert url("s3://box/a/b") == "https://box.s3.eu-west-1.amazonaws.com/a/b"
    assert url("s3://my.box/a") == "https://s3.eu-west-1.amazonaws.com/my.box/a"
    assert url("s3://box", "https://store.example/") == "https://store.example/box/"
    with pytest.raises(targets.UploadRefused, match="names no bucket"):
        url("s3://")
