"""The builder's commands over a checkout of a few files: what goes in, what comes out, what not."""

import contextlib
import dataclasses
import http.server
import pathlib
import shutil
import subprocess
import threading
from collections.abc import Iterator

import pytest

from installer import archive
from installer.build import signing, sources, wheels
from runtime_kit import crash_points
from tests.support import small_checkout
from tests.support.small_checkout import Checkout

WORKER = "enlist-worker-1.2.3-x86_64.tar"
FOR_ONE = ("--role", "worker", "--arch", "x86_64", "--python", "3.12")


@pytest.fixture(scope="module")
def wheels_cache(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Filled once, by the builder's own means, for the tests that are about something else."""
    checkout = small_checkout.make(tmp_path_factory.mktemp("filled"))
    key_file = checkout.root.parent / "release.key"
    signing.make(key_file)
    build(checkout, key_file, checkout.root.parent / "out", "--role", "worker", "--arch", "x86_64")
    return checkout.cache


@pytest.fixture
def cold(tmp_path: pathlib.Path) -> Checkout:
    return small_checkout.make(tmp_path)


@pytest.fixture
def checkout(cold: Checkout, wheels_cache: pathlib.Path) -> Checkout:
    shutil.copytree(wheels_cache, cold.cache)
    return cold


@pytest.fixture
def key_file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "release.key"
    signing.make(path)
    return path


def build(
    checkout: Checkout, key_file: pathlib.Path, out: pathlib.Path, *arguments: str
) -> dict[str, bytes]:
    """All files that the builder puts into the folder."""
    done = checkout.run(
        "bundle_command", *(arguments or FOR_ONE), "--key", str(key_file), "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_a_folder_holds_the_archive_its_installer_and_signed_hashes_of_all(
    checkout: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    found = build(checkout, key_file, tmp_path / "out")
    assert sorted(found) == sorted(
        [WORKER, "install.sh", "worker-x86_64", "SHA256SUMS", "SHA256SUMS.sig"]
    )
    key = signing.load(key_file)
    assert key.verify(found["SHA256SUMS"], found["SHA256SUMS.sig"])
    assert found["install.sh"].decode() == small_checkout.INSTALL_SH.replace(
        "RELEASE_KEY=''", f"RELEASE_KEY='{key.public_text}'"
    )
    subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS", "worker-x86_64"],
        cwd=tmp_path / "out",
        check=True,
        capture_output=True,
        timeout=30,
    )


def test_an_archive_carries_the_roles_code_wheels_and_units_and_nothing_else(
    checkout: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    arguments = ("--arch", "x86_64", "--python", "3.11", "--python", "3.13")
    build(checkout, key_file, tmp_path / "out", *arguments)
    shared = [
        "code/installer/__init__.py",
        "code/wire_protocol/__init__.py",
        "code/wire_protocol/product.py",
        "code/wire_protocol/py.typed",
    ]
    needed = [
        "wheels/first-1.0-py3-none-any.whl",
        "wheels/python3.11.sums",
        "wheels/python3.13.sums",
        "wheels/second_part-1.0-py3-none-any.whl",
    ]
    assert small_checkout.payload_names(tmp_path / "out", WORKER) == [
        *shared,
        "systemd/worker/enlist-agent.service",
        *needed,
    ]
    platform = WORKER.replace("worker", "platform")
    assert small_checkout.payload_names(tmp_path / "out", platform) == [
        shared[0],
        "code/platform_server/store/schema.sql",
        *shared[1:],
        "systemd/platform/enlist-platform.service",
        *needed,
    ]


def test_openssl_finds_the_manifests_signature_good(
    checkout: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed here")
    build(checkout, key_file, tmp_path / "out")
    for name in ("manifest", "manifest.sig"):
        taken = subprocess.run(
            ["tar", "-xOf", str(tmp_path / "out" / WORKER), name],
            check=True,
            capture_output=True,
            timeout=30,
        )
        (tmp_path / name).write_bytes(taken.stdout)
    (tmp_path / "release.pub").write_bytes(signing.load(key_file).public_pem)
    command = "openssl pkeyutl -verify -pubin -inkey release.pub -rawin -in manifest -sigfile"
    subprocess.run(
        [*command.split(), "manifest.sig"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=30,
    )


def test_the_same_source_gives_the_same_bytes_whoever_builds_it_where_and_when(
    checkout: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    first = build(checkout, key_file, tmp_path / "first")
    elsewhere = tmp_path / "elsewhere" / "deeper"
    shutil.copytree(checkout.root, elsewhere, copy_function=shutil.copyfile)
    (elsewhere / "wire_protocol" / "product.py").chmod(0o777)
    small_checkout.git(elsewhere, "config", "core.fileMode", "false")
    other = Checkout(root=elsewhere, index=checkout.index, cache=tmp_path / "another-cache")
    done = other.run(
        "bundle_command",
        *(*FOR_ONE, "--key", str(key_file), "--out", str(tmp_path / "second")),
        umask=0o077,
        environment=other.environment(TZ="Pacific/Auckland", LC_ALL="C", PYTHONHASHSEED="7"),
    )
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "second").iterdir()} == first
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in (tmp_path / "second").iterdir())


def test_a_release_says_when_it_is_not_what_was_committed(
    checkout: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    commit = small_checkout.git(checkout.root, "rev-parse", "HEAD").strip()
    key = signing.load(key_file)

    def says(out: str) -> str:
        build(checkout, key_file, tmp_path / out)
        with (tmp_path / out / WORKER).open("rb") as file:
            return archive.read(file, verify=key.verify).release.commit

    assert says("clean") == commit
    (checkout.root / "wire_protocol" / "more.py").write_text("")
    assert says("changed") == f"{commit}+changes"
    assert "code/wire_protocol/more.py" in small_checkout.payload_names(
        tmp_path / "changed", WORKER
    )


def test_once_the_wheels_are_there_no_index_is_asked(
    cold: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    arguments = (*FOR_ONE, "--key", str(key_file), "--out", str(tmp_path / "out"))
    offline = cold.environment(reaches_index=False)
    refused = cold.run("bundle_command", *arguments, environment=offline)
    assert (refused.returncode, refused.stdout) == (75, "")
    assert "pip could not download the locked wheels" in refused.stderr
    build(cold, key_file, tmp_path / "out")
    assert cold.run("bundle_command", *arguments, environment=offline).returncode == 0


def test_a_wheel_that_is_not_the_locked_one_is_refused(
    cold: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (wheel,) = cold.index.glob("first-*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"x")
    done = cold.run(
        "bundle_command", *FOR_ONE, "--key", str(key_file), "--out", str(tmp_path / "out")
    )
    assert done.returncode == 75
    assert "HASHES" in done.stderr.upper()
    assert not (tmp_path / "out").exists()


def test_a_cache_that_was_damaged_is_filled_anew(
    checkout: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    first = build(checkout, key_file, tmp_path / "first")
    for name, data in (("first-1.0-py3-none-any.whl", b"short"), ("python3.12-*.json", b"[1]")):
        (path,) = checkout.cache.glob(name)
        path.write_bytes(data)
        assert build(checkout, key_file, tmp_path / "again") == first
        shutil.rmtree(tmp_path / "again")
    for path in checkout.cache.iterdir():
        path.unlink()
    assert build(checkout, key_file, tmp_path / "again") == first


@pytest.mark.parametrize("point", [wheels.DOWNLOADED, wheels.POOLED])
def test_a_builder_killed_at_any_point_is_followed_by_one_that_finishes(
    point: str, cold: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    assert point in crash_points.declared()
    out = tmp_path / "out"
    arguments = (*FOR_ONE, "--key", str(key_file), "--out", str(out))
    crashing = cold.environment(ENLIST_CRASH_AT=point)
    killed = cold.run("bundle_command", *arguments, environment=crashing)
    assert killed.returncode == -9
    assert any(cold.cache.glob("incoming-*"))
    build(cold, key_file, out)
    assert not any(cold.cache.glob("incoming-*"))


def test_a_builder_killed_while_pip_downloads_is_followed_by_one_that_waits_for_pip(
    cold: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    arguments = (*FOR_ONE, "--key", str(key_file), "--out", str(tmp_path / "out"))
    with silent_index() as index:
        asking = cold.environment(reaches_index=False, PIP_INDEX_URL=index.url, PIP_RETRIES="0")
        del asking["PIP_NO_INDEX"]
        with cold.start("bundle_command", *arguments, environment=asking) as builder:
            assert index.asked.wait(60)
            builder.kill()
        next_one = cold.start("bundle_command", *arguments)
        with next_one:
            with pytest.raises(subprocess.TimeoutExpired):
                next_one.wait(1)
            index.answer.set()
            assert next_one.wait(60) == 0
    assert not any(cold.cache.glob("incoming-*"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """An index that lets pip wait until it is told to answer."""

    url: str
    asked: threading.Event
    answer: threading.Event


@contextlib.contextmanager
def silent_index() -> Iterator[Index]:
    asked, answer = threading.Event(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.set()
            answer.wait(60)
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield Index(url=f"http://127.0.0.1:{server.server_port}/simple", asked=asked, answer=answer)
    finally:
        answer.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("place", ["out", "cache"])
def test_a_place_that_cannot_be_written_is_named(
    place: str, cold: Checkout, key_file: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "a file").write_text("")
    blocked = str(tmp_path / "a file" / "below")
    arguments = (*FOR_ONE, "--key", str(key_file), "--out", str(tmp_path / "out"))
    done = cold.run("bundle_command", *arguments, f"--{place}", blocked)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{blocked} could not be written: Not a directory" in done.stderr


def test_without_a_key_the_command_says_which_it_made(tmp_path: pathlib.Path) -> None:
    key, path, made = signing.of_the_checkout(tmp_path)
    assert made
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    again, same, made = signing.of_the_checkout(tmp_path)
    assert (again.public_text, same, made) == (key.public_text, path, False)


BROKEN = {
    "a lock with a marker": (
        "requirements/base.lock",
        "first==1.0 ; python_version < '3.12' \\\n",
        "a line the builder cannot read",
    ),
    "no version": ("wire_protocol/product.py", "", "states no VERSION"),
    "a version of another form": (
        "wire_protocol/product.py",
        'VERSION = "1.2.3-rc1"\n',
        "version has the form",
    ),
    "an installer with a key": (
        "installer/install.sh",
        "RELEASE_KEY='abc'\n",
        "has 0 lines RELEASE_KEY=''",
    ),
    "an installer with two places": (
        "installer/install.sh",
        "RELEASE_KEY=''\nRELEASE_KEY=''\n",
        "has 2 lines RELEASE_KEY=''",
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_checkout_that_cannot_be_built_is_refused_and_leaves_nothing(
    broken: tuple[str, str, str],
    checkout: Checkout,
    key_file: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    name, text, says = broken
    (checkout.root / name).write_text(text)
    done = checkout.run(
        "bundle_command", *FOR_ONE, "--key", str(key_file), "--out", str(tmp_path / "out")
    )
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(sources.SourceError, match="is no checkout that can be built from"):
        sources.read(tmp_path)
