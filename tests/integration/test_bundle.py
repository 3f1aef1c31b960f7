"""The real archives of this checkout: their size, what they hold, and that they suffice to run."""

import hashlib
import io
import json
import lzma
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from installer.build import locks, signing, sources
from tests.repo import project
from tests.support import bundles, small_checkout

MOST_MEGABYTES = 25
CLOUD = (
    *("boto3", "botocore", "hcloud", "libcloud", "google", "googleapiclient", "azure"),
    *("aiohttp", "asyncpg", "uvloop", "pyrage", "nacl", "prometheus_client", "structlog"),
)


@pytest.fixture(scope="module")
def worker() -> bundles.Released:
    return bundles.released("worker")


@pytest.fixture(scope="module")
def payload(worker: bundles.Released) -> dict[str, bytes]:
    """What the worker's payload holds, by name."""
    with tarfile.open(worker.archive, mode="r:") as outer:
        packed = outer.extractfile("payload.tar.xz")
        assert packed is not None
        unpacked = lzma.decompress(packed.read())
    with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as inner:
        held = {}
        for member in inner.getmembers():
            file = inner.extractfile(member)
            assert file is not None
            assert (member.mode, member.uid, member.gid) == (0o644, 0, 0)
            held[member.name] = file.read()
    return held


@pytest.fixture(scope="module")
def unpacked(payload: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Code and wheels side by side, as the installer lays them out."""
    site = tmp_path_factory.mktemp("site")
    for name, data in payload.items():
        if name.startswith("code/"):
            path = site / name.removeprefix("code/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        elif name.endswith(".whl"):
            zipfile.ZipFile(io.BytesIO(data)).extractall(site)  # noqa: S202 - locked, by hash
    return site


def run(site: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line over the archive's files alone: nothing of this environment."""
    start = (
        f"import sys; sys.path.insert(0, {str(site)!r}); "
        "from operator_cli.main import main; sys.exit(main())"
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", start, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(site)},
    )


def test_a_worker_archive_for_one_python_is_small(worker: bundles.Released) -> None:
    megabytes = worker.archive.stat().st_size / 1_000_000
    assert megabytes <= MOST_MEGABYTES
    assert worker.release.pythons == (bundles.RUNNING_PYTHON,)


def test_a_worker_archive_holds_no_platform_and_no_cloud_sdk(
    payload: dict[str, bytes], unpacked: pathlib.Path
) -> None:
    assert {name.split("/")[1] for name in payload if name.startswith("code/")} == set(
        sources.PACKAGES["worker"]
    )
    assert not any("platform_server" in name or "provisioning" in name for name in payload)
    assert [name for name in CLOUD if (unpacked / name).exists()] == []
    assert {name.partition("/")[0] for name in payload} == {"code", "wheels", "systemd"}
    assert {name.split("/")[1] for name in payload if name.startswith("systemd/")} == {"worker"}


def test_the_builder_and_the_tests_stay_in_the_checkout(payload: dict[str, bytes]) -> None:
    assert [
        name for name in payload if name.startswith(("code/installer/build", "code/test"))
    ] == []


def test_every_wheel_is_locked_and_listed_for_its_python(payload: dict[str, bytes]) -> None:
    pins = locks.pins_for(sources.read(bundles.ROOT), "worker")
    hashes = {
        name.removeprefix("wheels/"): hashlib.sha256(data).hexdigest()
        for name, data in payload.items()
        if name.endswith(".whl")
    }
    listed = payload[f"wheels/python{bundles.RUNNING_PYTHON}.sums"].decode()
    assert {tuple(line.split("  ")) for line in listed.splitlines()} == {
        (sha256, name) for name, sha256 in hashes.items()
    }
    assert len(hashes) == len(pins)
    assert set(hashes.values()) <= {sha256 for pin in pins for sha256 in pin.hashes}


def test_nothing_of_a_shipped_package_is_left_behind() -> None:
    source = sources.read(bundles.ROOT)
    shipped = {
        *source.code("platform"),
        *source.units("worker"),
        *source.units("platform"),
        sources.INSTALL_SH,
    }
    tops = tuple(f"{name}/" for name in (*sources.PACKAGES["platform"], "systemd"))
    left = [
        name
        for name in project.files()
        if name.startswith(tops)
        and name not in shipped
        and not name.startswith("installer/build/")
        and not name.endswith("README.md")
    ]
    assert left == []


def test_the_archives_files_alone_run_the_command_line(unpacked: pathlib.Path) -> None:
    version = run(unpacked, "--version")
    assert (version.stdout, version.stderr) == (
        f"enlist {sources.read(bundles.ROOT).version}\n",
        "",
    )
    for arguments in (["agent", "--help"], ["worker", "join", "--help"], ["doctor", "--help"]):
        done = run(unpacked, *arguments)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Usage: ")


def test_a_worker_says_what_it_lacks_to_be_a_platform(unpacked: pathlib.Path) -> None:
    done = run(unpacked, "serve")
    assert done.returncode == 6
    assert "without the Platform's packages" in done.stderr


def test_the_installers_modules_need_no_wheel(
    payload: dict[str, bytes], unpacked: pathlib.Path
) -> None:
    bare = unpacked.parent / "bare"
    modules = []
    for name, data in payload.items():
        package, _, rest = name.removeprefix("code/").partition("/")
        if package in {"installer", "wire_protocol", "runtime_kit"} and name.startswith("code/"):
            path = bare / package / rest
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            if package == "installer" and rest.endswith(".py") and not rest.startswith("__"):
                modules.append(f"{package}.{rest[:-3].replace('/', '.')}")
    known = [module for module in modules if not module.endswith(("__init__", "__main__"))]
    code = f"import sys, importlib; sys.path.insert(0, {str(bare)!r})\n" + "\n".join(
        f"importlib.import_module({module!r})" for module in known
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "installer.archive" in known


def test_a_release_names_its_commit_and_its_time(worker: bundles.Released) -> None:
    document = json.loads(worker.release.to_bytes())
    assert document["format"] == 1
    assert len(document["commit"].partition("+")[0]) == 40


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_copies_of_this_checkout_give_the_same_archives(tmp_path: pathlib.Path) -> None:
    key_file = tmp_path / "release.key"
    signing.make(key_file)
    snapshot = tmp_path / "snapshot"
    for file in sources.read(bundles.ROOT).files:
        (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(bundles.ROOT / file, snapshot / file)
    small_checkout.git(snapshot, "init", "--quiet")
    small_checkout.git(snapshot, "add", "--all")
    small_checkout.git(snapshot, "commit", "--quiet", "--message", "All of it")
    made = []
    for name in ("first", "second"):
        copy = tmp_path / name / "checkout"
        shutil.copytree(snapshot, copy, copy_function=shutil.copyfile)
        out = tmp_path / name / "out"
        subprocess.run(
            [
                *(sys.executable, "-m", "installer.build.bundle_command"),
                *("--source", copy, "--cache", bundles.WHEELS, "--key", key_file, "--out", out),
                *("--python", bundles.RUNNING_PYTHON),
            ],
            check=True,
            timeout=600,
            umask=0o077 if name == "first" else 0,
        )
        made.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert made[0] == made[1]
