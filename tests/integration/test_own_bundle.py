"""A Platform that runs from a checkout and has no bundle builds one, and says so."""

import asyncio
import json
import pathlib
import ssl

import httpx
import pytest

from tests.support import real_platform, waits
from wire_protocol import product

BUILD = {"ENLIST_BUNDLES__BUILD": "true"}
SECONDS = 300.0
pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]  # three Pythons' wheels are packed


def bundles(platform: real_platform.RealPlatform) -> list[dict[str, object]]:
    """What machines can install from."""
    found = platform.api("GET", "/platform/bundles")["bundles"]
    assert isinstance(found, list)
    return found


def test_machines_can_install_from_a_platform_that_was_given_no_bundle(
    tmp_path: pathlib.Path,
) -> None:
    data_dir = tmp_path / "platform"
    with real_platform.running(data_dir, "--bundle-port", "0", environment=BUILD) as platform:
        asyncio.run(waits.until(lambda: bool(bundles(platform)), seconds=SECONDS))
        (bundle,) = bundles(platform)
        assert (bundle["role"], bundle["version"]) == ("worker", product.VERSION)
        issued = json.loads(platform.enlist("nodes", "enroll-token", "web-1", "-o", "json"))
        assert f"{platform.said['bundle']}/install.sh" in issued["bare_command"]
        unverified = ssl.create_default_context()
        unverified.check_hostname = False
        unverified.verify_mode = ssl.CERT_NONE
        got = httpx.get(f"{platform.said['bundle']}/install.sh", verify=unverified)
        assert "RELEASE_KEY='" in got.text
        said = platform.log.read_text()
        assert "building one from this installation" in said
        log = platform.api("GET", "/audit?limit=50")["entries"]
        assert [one["target"] for one in log if one["action"] == "platform.bundle-add"]
    assert (data_dir / "own-release.key").stat().st_mode & 0o777 == 0o600
    with real_platform.running(data_dir, "--bundle-port", "0", environment=BUILD) as platform:
        assert len(bundles(platform)) == 1
        assert platform.log.read_text().count("building one from this installation") <= 1
