"""A machine that boots and never joins: the operation says how far it came, and why (B84). Long.

00 the package repository is out of reach: the phase, and the installer's own words
01 the Platform is out of reach: what the console showed
02 the Platform has another key than the ticket says: what the console showed
03 the disk is full: the phase, and which disk
"""

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from provisioning.local import images
from tests.support.machines import local

pytestmark = pytest.mark.long
FAILS_SECONDS = 120.0
# Long enough to see the phase, short for a test: a machine gets 20 minutes.
QUICK = {"ENLIST_CLOUD__ENROLLMENT_SECONDS": "25", "ENLIST_CLOUD__ATTEMPTS": "1"}


@pytest.fixture(scope="module", autouse=True)
def _turn() -> Iterator[None]:
    reason = local.why_not()
    if reason is not None:
        pytest.skip(reason)
    try:
        local.ensure_image()
    except images.BuildFailed as failure:
        pytest.skip(f"no image can be built: {failure}")
    with local.alone():
        yield


def ordered(laptop: local.Laptop) -> tuple[str, str]:
    """A machine is ordered: its operation and its name at the provider, once it boots."""
    made = laptop.document("cloud", "machines", "create", "demo", "--provider", "local")
    operation = made["operation"]["operation_id"]
    machine = local.wait(
        lambda: laptop.platform.api("GET", "/cloud/machines/demo"),
        until=lambda found: found["provider_ref"] is not None,
        what="the machine is there",
        seconds=60,
    )
    return operation, machine["provider_ref"]


def failure(laptop: local.Laptop, operation: str) -> dict[str, Any]:
    """The operation, once it has failed."""
    return local.wait(
        lambda: laptop.platform.api("GET", f"/operations/{operation}"),
        until=lambda found: found["state"] == "failed",
        what="the order has failed",
        seconds=FAILS_SECONDS,
    )


def phases(laptop: local.Laptop) -> list[dict[str, str]]:
    """What first boot told."""
    found = laptop.platform.api("GET", "/cloud/machines/demo")["phases"]
    assert isinstance(found, list)
    return found


def test_00_without_a_package_repository_the_installers_words_are_told(
    tmp_path: pathlib.Path,
) -> None:
    with (
        local.image_without("/usr/lib/python3.11/sqlite3", package="python3") as image_folder,
        local.opened(tmp_path, environment=QUICK, image_folder=image_folder) as laptop,
    ):
        operation, _ = ordered(laptop)
        reason = failure(laptop, operation)["reason"]
        told = [(one["phase"], one["detail"]) for one in phases(laptop)]
        assert [phase for phase, _ in told][:2] == ["fetching", "installing"]
        assert "could not install python3" in told[-1][1], told
        assert "installing" in reason
        assert "python3" in reason
        laptop.run("cloud", "machines", "delete", "demo", "--wait")


def test_01_without_a_way_to_the_platform_the_console_is_told(tmp_path: pathlib.Path) -> None:
    with local.opened(tmp_path, environment=QUICK) as laptop:
        with local.cut_off():
            operation, ref = ordered(laptop)
            reason = failure(laptop, operation)["reason"]
        assert phases(laptop) == []
        assert "The console showed last" in reason, (reason, laptop.guest(ref).console())
        assert "cannot be reached" in reason
        assert f"https://{local.ADDRESS}" in reason
        laptop.run("cloud", "machines", "delete", "demo", "--wait")


def test_02_another_key_than_the_tickets_is_told_by_the_console(tmp_path: pathlib.Path) -> None:
    with local.opened(tmp_path, environment=QUICK) as laptop:
        operation, ref = ordered(laptop)
        laptop.run("platform", "rotate-tls-key", "--port", "enrollment", "--now", "--yes")
        reason = failure(laptop, operation)["reason"]
        assert "answers with the key sha256:" in reason, (reason, laptop.guest(ref).console())
        laptop.run("cloud", "machines", "delete", "demo", "--wait")


def test_03_a_full_disk_is_told_by_its_phase(tmp_path: pathlib.Path) -> None:
    with (
        local.small_disk(28) as disk,
        local.opened(tmp_path, environment=QUICK, directory=disk / "machines") as laptop,
    ):
        operation, ref = ordered(laptop)
        reason = failure(laptop, operation)["reason"]
        assert "room" in reason.lower() or "space" in reason.lower(), (
            reason,
            laptop.guest(ref).console(),
        )
        assert phases(laptop)[-1]["phase"] == "failed"
        laptop.run("cloud", "machines", "delete", "demo", "--wait")
