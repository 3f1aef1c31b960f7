"""`scripts/release` over a small checkout, and what a released folder may hold."""

import pathlib
import shutil

import pytest

from installer import archive
from installer import release as release_format
from installer.build import bundle_command, folder, release_command, signing
from tests.support import small_checkout
from tests.support.small_checkout import Checkout

ARCHIVES = [
    f"enlist-{role}-1.2.3-{arch}.tar"
    for role in ("platform", "worker")
    for arch in ("aarch64", "x86_64")
]


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> Checkout:
    return small_checkout.make(tmp_path)


@pytest.fixture
def key_file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "release.key"
    signing.make(path)
    return path


def test_a_release_is_built_signed_and_uploaded_with_its_artifacts(
    checkout: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    kernel = tmp_path / "vmlinux-6.1.155-x86_64"
    kernel.write_bytes(b"kernel" * 1_000_000)
    out, mirror = tmp_path / "out", tmp_path / "mirror" / "enlist"
    done = checkout.run(
        "release_command",
        *("--tag", "v1.2.3", "--key", str(key_file), "--python", "3.12", "--out", str(out)),
        *("--artifact", str(kernel), "--to", str(mirror)),
    )
    assert done.returncode == 0, done.stderr
    names = {path.name for path in out.iterdir()}
    assert names == {
        *ARCHIVES,
        *("install.sh", kernel.name, "SHA256SUMS", "SHA256SUMS.sig"),
        *(f"{role}-{arch}" for role in ("worker", "platform") for arch in ("x86_64", "aarch64")),
    }
    assert {path.name for path in mirror.iterdir()} == names
    listed = release_format.parse_sums((mirror / "SHA256SUMS").read_bytes())
    assert {name: folder.hash_of(mirror / name) for name in listed} == listed
    assert set(listed) == names - {"SHA256SUMS", "SHA256SUMS.sig"}
    key = signing.load(key_file)
    for name in ARCHIVES:
        with (mirror / name).open("rb") as file:
            assert archive.read(file, verify=key.verify).release.archive_name == name


REFUSED = {
    "another tag": (("--tag", "v1.2.4"), "is not v1.2.3"),
    "a target over http": (("--to", "http://example.org/"), "no plain https address"),
    "an S3 target without keys": (("--to", "s3://bucket/x"), "needs AWS_ACCESS_KEY_ID"),
    "a key that is not there": (("--key", "/nowhere/release.key"), "scripts/release --new-key"),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_released_is_said_before_anything_is_built(
    refused: tuple[tuple[str, ...], str],
    checkout: Checkout,
    key_file: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    arguments, says = refused
    done = checkout.run(
        "release_command", "--key", str(key_file), "--out", str(tmp_path / "out"), *arguments
    )
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "out").exists()
    assert not checkout.cache.exists()


def test_a_checkout_with_changes_is_not_released(
    checkout: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (checkout.root / "README.md").write_text("changed\n")
    done = checkout.run("release_command", "--key", str(key_file), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "has changes beside its commit" in done.stderr


def test_a_new_key_is_private_never_replaced_and_shows_its_public_half(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "release.key"
    assert release_command.main(["--new-key", str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    key = signing.load(path)
    assert capsys.readouterr().out == f"{key.public_text}\n"
    assert release_command.main(["--new-key", str(path)]) == 2
    assert "never replaced" in capsys.readouterr().err
    assert signing.load(path).public_text == key.public_text


def test_a_new_key_is_not_put_into_the_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    path = bundle_command.ROOT / "docs" / "release.key"
    assert release_command.main(["--new-key", str(path)]) == 2
    assert "is inside the checkout" in capsys.readouterr().err
    assert not path.exists()


BAD_KEYS = {
    "readable for others": (0o640, None, "chmod 600"),
    "no key": (0o600, b"nothing\n", "no Ed25519 key"),
    "too long": (0o600, b"x" * 10_000, "no Ed25519 key"),
}


@pytest.mark.parametrize(("mode", "text", "says"), BAD_KEYS.values(), ids=BAD_KEYS.keys())
def test_a_key_file_that_cannot_be_used_is_refused(
    mode: int, text: bytes | None, says: str, key_file: pathlib.Path
) -> None:
    if text is not None:
        key_file.write_bytes(text)
    key_file.chmod(mode)
    with pytest.raises(signing.KeyFileError, match=says):
        signing.load(key_file)


def build(checkout: Checkout, key_file: pathlib.Path, out: pathlib.Path, *more: str) -> str:
    """What the builder says when it refuses; nothing when it does not."""
    arguments = ("--arch", "x86_64", "--python", "3.12", "--key", str(key_file))
    done = checkout.run("bundle_command", *arguments, "--out", str(out), *more)
    if done.returncode == 0:
        return ""
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_a_folder_is_added_to_by_the_key_that_signed_it_and_by_no_other(
    checkout: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"
    assert build(checkout, key_file, out, "--role", "worker") == ""
    assert build(checkout, key_file, out, "--role", "platform") == ""
    assert {*ARCHIVES[1::2], "install.sh"} < set(
        release_format.parse_sums((out / "SHA256SUMS").read_bytes())
    )
    other = tmp_path / "other.key"
    signing.make(other)
    assert "is not signed by this key" in build(checkout, other, out, "--role", "worker")
    (out / "SHA256SUMS").unlink()  # as a run leaves it that was killed before the list
    assert build(checkout, key_file, out, "--role", "worker") == ""


def test_a_file_that_was_changed_since_is_not_signed_again(
    checkout: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "out"
    assert build(checkout, key_file, out, "--role", "worker") == ""
    (out / "install.sh").write_text("#!/bin/sh\nreboot\n")
    says = build(checkout, key_file, out, "--role", "platform")
    assert "install.sh has been changed since it was signed" in says


@pytest.mark.parametrize("name", ["install.sh", "SHA256SUMS", "worker-x86_64", ARCHIVES[0]])
def test_an_artifact_takes_no_name_of_the_releases_own(
    name: str, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    artifact = tmp_path / name
    artifact.write_bytes(b"x")
    with pytest.raises(folder.FolderError, match="belongs to the release itself"):
        folder.write(
            tmp_path / "out",
            [],
            artifacts=[artifact],
            key=signing.load(key_file),
            wrote=lambda _path: None,
        )
    shutil.rmtree(tmp_path / "out")
