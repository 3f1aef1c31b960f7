"""The command line and the SDK against a real Platform: by its socket, and over pinned https."""

import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import enlist
from enlist import enrollments, targets
from tests.support import certificates, real_platform
from wire_protocol import enrollment_token, join_token

_names = (f"node-{number}" for number in itertools.count(1))
STRANGER = f"sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_platform.RealPlatform]:
    """One Platform for the module, its API beyond loopback and so with its own certificate."""
    folder = tmp_path_factory.mktemp("platform") / "data"
    with real_platform.running(folder, "--listen", "0.0.0.0:0") as running:
        yield running


@pytest.fixture
def node_id() -> str:
    return next(_names)


@pytest.fixture
def api(platform: real_platform.RealPlatform) -> str:
    """The API's address by loopback."""
    return f"https://127.0.0.1:{platform.said['api'].rpartition(':')[2]}"


@pytest.fixture
def local(platform: real_platform.RealPlatform) -> Iterator[enlist.Client]:
    with enlist.Client(target=targets.local(platform.data_dir)) as client:
        yield client


def run(home: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    return subprocess.run(
        [*real_platform.ENLIST, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=real_platform.clean_environment(environment),
    )


def test_a_token_is_issued_listed_withdrawn_and_logged(
    platform: real_platform.RealPlatform, node_id: str
) -> None:
    issued = json.loads(platform.enlist("nodes", "enroll-token", node_id, "-o", "json"))
    assert sorted(issued) == sorted(
        ["node_id", "enrollment_id", "token", "join_token", "expires_at", "platform_url", "pins",
         "command"]
    )  # fmt: skip
    assert join_token.decode(issued["join_token"]).node_id == node_id
    assert enrollment_token.parse(issued["token"]).enrollment_id == issued["enrollment_id"]
    assert issued["token"] not in issued["command"].splitlines()[0]
    listed = platform.enlist("nodes", "list", "-o", "json")
    assert issued["enrollment_id"] in listed
    assert issued["token"] not in listed
    assert node_id in platform.enlist("nodes", "list")
    platform.enlist("nodes", "withdraw-token", node_id, "--check")
    assert issued["enrollment_id"] in platform.enlist("nodes", "list", "-o", "json")
    platform.enlist("nodes", "withdraw-token", node_id)
    assert issued["enrollment_id"] not in platform.enlist("nodes", "list", "-o", "json")
    log = json.loads(platform.enlist("audit", "list", "-o", "json"))["entries"]
    assert [entry["action"] for entry in log if entry["target"] == node_id] == [
        "enrollments.withdraw",
        "enrollments.issue",
    ]
    assert json.loads(platform.enlist("audit", "verify", "-o", "json"))["intact"] is True


def test_a_machine_is_enrolled_by_hand_labelled_and_removed(
    platform: real_platform.RealPlatform, node_id: str, tmp_path: Path
) -> None:
    machine = certificates.issue()
    cert = tmp_path / "cert.pem"
    cert.write_text(machine.pem)
    token = json.loads(platform.enlist("nodes", "enroll-token", node_id, "-o", "json"))["token"]
    trust = tmp_path / "trust.json"
    line = ("nodes", "enroll", node_id, "--enrollment-token-file", "-", "--cert-file", str(cert))
    answer = platform.enlist(*line, "--trust-out", str(trust), "-o", "json", stdin=token)
    assert json.loads(answer)["agent_id"] == f"agent-{node_id}"
    assert json.loads(trust.read_text())["trust_keys"]
    node = json.loads(platform.enlist("nodes", "show", node_id, "-o", "json"))
    assert (node["state"], node["pin"]) == ("enrolled", machine.pin)
    platform.enlist("nodes", "label", node_id, "role=web", "rack=7")
    platform.enlist("nodes", "label", node_id, "rack-")
    shown = platform.enlist("nodes", "list", "--label", "role=web", "-o", "json")
    assert [one["labels"] for one in json.loads(shown)["nodes"]] == [{"role": "web"}]
    platform.enlist("nodes", "maintenance", node_id, "--reason", "new disk")
    assert "enrolled,maintenance" in platform.enlist("nodes", "list")
    checked = json.loads(platform.enlist("nodes", "drain", node_id, "--check", "-o", "json"))
    assert [change["action"] for change in checked["changes"]] == ["drain"]
    drained = platform.enlist("nodes", "drain", node_id)
    assert drained == f"drain {node_id}: no work is left on it\n"
    platform.enlist("nodes", "resume", node_id, "-o", "json")
    shown = json.loads(platform.enlist("nodes", "show", node_id, "-o", "json"))
    assert shown["scheduling"] == "active"
    assert "Would do" in platform.enlist("nodes", "remove", node_id, "--check")
    platform.enlist("nodes", "remove", node_id, "--force")
    assert json.loads(platform.enlist("nodes", "show", node_id, "-o", "json"))["state"] == "removed"
    real_platform.run_enlist(
        "--data-dir", str(platform.data_dir), "nodes", "enroll-token", node_id, expect=4
    )
    platform.enlist("nodes", "allow", node_id)
    assert "enlist worker join -" in platform.enlist("nodes", "enroll-token", node_id)


def test_keys_are_rotated_while_it_runs(platform: real_platform.RealPlatform) -> None:
    before = json.loads(platform.enlist("platform", "show", "-o", "json"))["trust_keys"]
    platform.enlist("platform", "rotate-trust-key")
    after = json.loads(platform.enlist("nodes", "platform", "-o", "json"))["trust_keys"]
    assert [key["key_id"] for key in after[: len(before)]] == [key["key_id"] for key in before]
    assert len(after) == len(before) + 1
    platform.enlist("platform", "rotate-master-key")


def test_events_are_read_to_the_end_and_followed_on(
    platform: real_platform.RealPlatform, local: enlist.Client, node_id: str
) -> None:
    seen = json.loads(platform.enlist("events", "-o", "json"))["events"]
    following = local.events(after=seen[-1]["seq"])
    issued = local.enrollments.create(node_id)
    event = next(following)
    assert (event.kind, event.subject) == ("enrollment.issued", issued.enrollment_id)
    assert event.seq > seen[-1]["seq"]


def test_a_context_with_the_pin_works_and_permissions_hold(
    platform: real_platform.RealPlatform, api: str, tmp_path: Path
) -> None:
    token = tmp_path / "viewer.token"
    token.write_text(platform.enlist("tokens", "create", "--permission", "nodes.view"))
    (pin,) = json.loads(platform.enlist("platform", "show", "-o", "json"))["api_pins"]
    assert [pin] == platform.said["api_pins"]
    added = run(tmp_path, "config", "add-context", "prod", "--url", api, "--pin", pin,
                "--token-file", str(token))  # fmt: skip
    assert added.returncode == 0, added.stderr
    listed = run(tmp_path, "nodes", "list", "-o", "json")
    assert listed.returncode == 0, listed.stderr
    assert set(json.loads(listed.stdout)) == {"nodes", "enrollments"}
    refused = run(tmp_path, "nodes", "enroll-token", "web-1")
    assert (refused.returncode, refused.stdout) == (7, "")
    assert "nodes.enroll" in refused.stderr


def test_another_key_than_the_pinned_one_needs_the_operator(
    platform: real_platform.RealPlatform, api: str
) -> None:
    with (
        enlist.Client(api, token="secret", pins=[STRANGER]) as client,
        pytest.raises(enlist.NeedsOperator) as caught,
    ):
        client.nodes.list()
    assert platform.said["api_pins"][0] in str(caught.value)
    assert "Nothing was sent" in str(caught.value)


def test_without_a_pin_its_own_certificate_is_not_believed(api: str) -> None:
    with enlist.Client(api, token="secret") as client, pytest.raises(enlist.NeedsOperator):
        client.nodes.list()


async def test_the_async_client_does_what_the_other_does(
    platform: real_platform.RealPlatform, api: str, local: enlist.Client, node_id: str
) -> None:
    created = local.tokens.create("test", permissions=["nodes.view", "nodes.enroll"], ttl_days=1)
    async with enlist.AsyncClient(
        api, token=created.token, pins=platform.said["api_pins"]
    ) as client:
        issued = await client.enrollments.create(node_id, ttl_minutes=5)
        assert issued.token is not None
        open_ones = (await client.nodes.list()).enrollments
        assert node_id in [one.node_id for one in open_ones]
        checked = await client.check(enrollments.create(f"{node_id}-more"))
        assert [change.action for change in checked.changes] == ["issue"]
        with pytest.raises(enlist.NotFound):
            await client.nodes.get(f"{node_id}-more")


async def test_the_same_key_gives_no_second_token(local: enlist.Client, node_id: str) -> None:
    call = enrollments.create(node_id)
    first = local.send(call, key="one-key-for-both")
    again = local.send(call, key="one-key-for-both")
    assert first.enrollment_id == again.enrollment_id
    assert (again.token, again.code) == (None, "token-already-shown")
    other: Any = enrollments.create(f"{node_id}-other")
    with pytest.raises(enlist.Conflict) as caught:
        local.send(other, key="one-key-for-both")
    assert caught.value.code == "idempotency-mismatch"


def test_a_refused_enrollment_says_nothing_more(
    platform: real_platform.RealPlatform, tmp_path: Path
) -> None:
    cert = tmp_path / "cert.pem"
    cert.write_text(certificates.issue().pem)
    done = run(
        tmp_path, "--data-dir", str(platform.data_dir), "nodes", "enroll", "web-1", "--cert-file",
        str(cert), "--enrollment-token-file", "-", stdin=enrollment_token.new().text(),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    assert "refused" in done.stderr
    assert "enlist nodes audit" in done.stderr
    attempts = json.loads(platform.enlist("nodes", "audit", "--limit", "1", "-o", "json"))
    assert [one["outcome"] for one in attempts["attempts"]] == ["refused"]


def test_no_platform_there_is_temporary(tmp_path: Path) -> None:
    done = run(tmp_path, "--data-dir", str(tmp_path), "nodes", "list")
    assert (done.returncode, done.stdout) == (75, "")
    assert "enlist serve" in done.stderr


def test_a_reader_that_leaves_is_no_fault(platform: real_platform.RealPlatform) -> None:
    command = [*real_platform.ENLIST, "--data-dir", str(platform.data_dir), "audit", "export"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=real_platform.clean_environment(),
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
