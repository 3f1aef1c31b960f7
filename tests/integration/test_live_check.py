"""`scripts/live-check`: what has no account is skipped and counted; else a machine is tried."""

import concurrent.futures
import json
import pathlib
import subprocess
import sys

import pytest

from runtime_kit import clock as clock_kit
from tests.support import faked_hetzner, operators, real_platform
from tests.support.clouds import hetzner, server

pytestmark = pytest.mark.timeout(400)
ROOT = pathlib.Path(__file__).parents[2]


def _check(folder: pathlib.Path, *providers: str) -> "subprocess.CompletedProcess[str]":
    environment = real_platform.clean_environment({"ENLIST_LIVE_DIR": str(folder)})
    return subprocess.run(
        [sys.executable, "-m", "scripts.live", *providers],
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
        cwd=ROOT,
        env=environment,
    )


def test_without_an_account_a_provider_is_skipped_and_counted(tmp_path: pathlib.Path) -> None:
    done = _check(tmp_path, "aws", "hetzner")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("SKIPPED aws: no account")
    assert done.stdout.splitlines()[-1] == "0 passed, 0 failed, 2 skipped"


def test_an_account_that_others_can_read_is_a_failure(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "hetzner.json"
    file.write_text("{}")
    file.chmod(0o644)
    done = _check(tmp_path, "hetzner")
    assert done.returncode == 1
    assert f"chmod 600 {file}" in done.stdout


@pytest.mark.long
def test_a_machine_is_tried_from_its_order_to_its_confirmed_end(tmp_path: pathlib.Path) -> None:
    """The Platform that it starts builds the bundle first, which takes most of the time."""
    fake = hetzner.FakeHetzner(clock=clock_kit.SystemClock(), action_seconds=0.2)
    with server.Served(fake) as served:
        rules = json.loads(faked_hetzner.policy(tmp_path).read_text())["providers"]["hetzner"]
        account = {
            "kind": "token",
            "secret_file": "token",
            "settings": {"endpoint": f"{served.address}/v1"},
            "address": "127.0.0.1",
            "policy": rules,
        }
        for name, text in (
            ("hetzner.json", json.dumps(account)),
            ("token", faked_hetzner.TOKEN),
        ):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o600)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            trying = pool.submit(_check, tmp_path, "hetzner")
            operators.wait_until(
                lambda: bool(fake.ledger.living()) or trying.done(),
                what="a machine is bought",
                seconds=300,
            )
            assert not trying.done(), (trying.result().stdout, trying.result().stderr)
            (bought,) = fake.ledger.living()
            with faked_hetzner.booted(tmp_path, bought=bought):
                done = trying.result(300)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "PASSED  hetzner: cx23 in fsn1" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    assert faked_hetzner.TOKEN not in done.stdout + done.stderr
    assert fake.ledger.living() == []
