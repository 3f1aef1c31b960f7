"""`enlist doctor --bundle`: what helps is in it, and no secret that the system knows."""

import base64
import json
import pathlib
import stat
import subprocess
from collections.abc import Iterator, Mapping

import pytest

from runtime_kit import private_files
from runtime_kit.wireguard import keys
from tests.support import machine, planted, real_platform

pytestmark = pytest.mark.timeout(180)

PROXY_PASSWORD = "hunter2-proxy-word"
DATABASE_PASSWORD = "hunter3-database-word"
ENVIRONMENT = {
    "https_proxy": f"http://proxy-user:{PROXY_PASSWORD}@127.0.0.1:9",
    "no_proxy": "127.0.0.1",
}


class Rig:
    """A Platform with a node that listens, and every secret that was ever shown."""

    def __init__(self, folder: pathlib.Path, platform: real_platform.RealPlatform) -> None:
        self.folder = folder
        self.platform = platform
        self.machine = machine.in_folder(folder)
        self.shown: dict[str, str] = {
            "proxy password": PROXY_PASSWORD,
            "database password": DATABASE_PASSWORD,
        }
        used = machine.issue(platform, "w-1")
        self.shown["join token used"] = used
        self.machine.join(used)
        self.dialling = machine.in_folder(folder, name="dialling")
        dials = machine.issue(platform, "w-3")
        self.shown["join token of w-3"] = dials
        self._on_dialling("join", "-", stdin=dials)
        self._on_dialling("renew", "--new-key")  # the former pair stays on the disk
        mesh_key = self.dialling.data_dir / "identity" / "mesh.key"
        private_files.write_private(mesh_key, keys.new_private_key().reveal().encode())
        issued = platform.api("POST", "/enrollments", {"node_id": "w-2"})
        self.shown["join token unused"] = str(issued["join_token"])
        self.shown["enrollment token"] = str(issued["token"])
        self.shown["secret of the enrollment token"] = str(issued["token"]).split("_")[2]
        created = platform.api("POST", "/tokens", {"name": "ci", "permissions": ["nodes.view"]})
        self.shown["API token"] = str(created["token"])
        self.shown["secret of the API token"] = str(created["token"]).split("_")[2]

    def _on_dialling(self, *command: str, stdin: str = "") -> None:
        real_platform.run_enlist(
            "--data-dir", str(self.dialling.data_dir), "worker", *command, stdin=stdin
        )

    def secrets(self) -> list[tuple[str, bytes]]:
        found = [
            *planted.of_platform(self.platform.data_dir),
            *planted.of_files(self.folder),
            *planted.of_texts(self.shown),
        ]
        for text in self.shown.values():  # the token's own bytes too
            if len(text) == 64:
                found += [("raw secret", form) for form in planted.of_bytes(bytes.fromhex(text))]
        names = {name for name, _ in found}
        assert any("listener/tls.pem" in name for name in names)
        assert any("identity" in name for name in names)
        assert any("gateway" in name for name in names)
        assert any("former-1.pem" in name for name in names)
        assert any("mesh.key" in name for name in names)
        return found


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("bundle")
    with real_platform.running(folder / "platform", environment=ENVIRONMENT) as platform:
        yield Rig(folder, platform)


def _bundle(
    rig: Rig, data_dir: pathlib.Path, *, more: Mapping[str, str] | None = None
) -> dict[str, bytes]:
    """The members of a fresh archive, and what the command itself printed."""
    archive = rig.folder / "support.tar.gz"
    done = subprocess.run(
        [*real_platform.ENLIST, "doctor", "--data-dir", str(data_dir), "-o", "json",
         "--bundle", str(archive)],
        capture_output=True,
        timeout=60,
        check=False,
        env=real_platform.clean_environment({
            **ENVIRONMENT,
            "ENLIST_TOKEN": rig.shown["API token"],
            **(more or {}),
        }),
    )  # fmt: skip
    assert done.returncode in (0, 6, 75), done.stderr
    document = json.loads(done.stdout)
    assert document["bundle"] == str(archive)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    return {**planted.unpacked(archive), "stdout": done.stdout, "stderr": done.stderr}


def _member(found: Mapping[str, bytes], name: str) -> str:
    (content,) = [content for path, content in found.items() if path.endswith(f"/{name}")]
    return content.decode()


def test_a_workers_archive_holds_what_helps_and_no_secret(rig: Rig) -> None:
    with rig.machine.agent(environment=ENVIRONMENT):
        machine.wait_for_state(rig.platform, "w-1", "ready")
        found = _bundle(rig, rig.machine.data_dir)
    assert planted.leaks(rig.secrets(), where=found) == []
    assert "worker.enrollment" in _member(found, "findings.json")
    assert "identity/key.pem" in _member(found, "files.txt")
    assert json.loads(_member(found, "worker.json"))["agent"]["node_id"] == "w-1"
    assert "https_proxy=" in _member(found, "environment.txt")


def test_an_archive_of_a_node_that_dials_out_holds_neither_former_keys_nor_the_meshs(
    rig: Rig,
) -> None:
    found = _bundle(rig, rig.dialling.data_dir)
    assert planted.leaks(rig.secrets(), where=found) == []
    assert "former-1.pem" in _member(found, "files.txt")
    assert "worker.admission" in _member(found, "findings.json")


def test_a_running_platforms_archive_holds_what_helps_and_no_secret(rig: Rig) -> None:
    found = _bundle(rig, rig.platform.data_dir)
    assert planted.leaks(rig.secrets(), where=found) == []
    assert json.loads(_member(found, "nodes.json"))["nodes"][0]["node_id"] == "w-1"
    assert "enrolled" in _member(found, "enrollment-attempts.json")
    assert "The engine serves" in _member(found, "log.txt")
    assert "master.key" in _member(found, "files.txt")


def test_a_stopped_platforms_archive_holds_what_helps_and_no_secret(
    tmp_path: pathlib.Path,
) -> None:
    with real_platform.running(tmp_path / "platform") as platform:
        rig = Rig(tmp_path, platform)
    found = _bundle(rig, rig.platform.data_dir)
    assert planted.leaks(rig.secrets(), where=found) == []
    assert json.loads(_member(found, "store.json"))["nodes"][0]["node_id"] == "w-1"


def test_a_password_in_the_settings_prints_as_dots(tmp_path: pathlib.Path) -> None:
    with real_platform.running(tmp_path / "platform") as platform:
        rig = Rig(tmp_path, platform)
    url = f"postgresql://enlist:{DATABASE_PASSWORD}@127.0.0.1:9/enlist"
    (rig.platform.data_dir / "config.toml").write_text(f'[store]\ndatabase_url = "{url}"\n')
    found = _bundle(rig, rig.platform.data_dir)
    assert planted.leaks(rig.secrets(), where=found) == []
    shown = {one["name"]: one["value"] for one in json.loads(_member(found, "settings.json"))}
    assert shown["store.database_url"].endswith("@127.0.0.1:9/enlist")
    assert "••••" in shown["store.database_url"]


def test_the_search_itself_finds_a_secret_in_every_form() -> None:
    secret = "correct-horse-battery"
    forms = list(planted.of_texts({"it": secret}))
    for said in (
        secret.encode(),
        secret.encode().hex().encode(),
        *(base64.b64encode(b"x" * shift + secret.encode() + b"tail") for shift in range(3)),
    ):
        assert planted.leaks(forms, where={"a part": b"before " + said + b" after"}), said
    assert planted.leaks(forms, where={"a part": b"correct-horse"}) == []


def test_a_secret_that_strayed_into_a_label_or_the_log_is_dots(tmp_path: pathlib.Path) -> None:
    with real_platform.running(tmp_path / "platform") as platform:
        rig = Rig(tmp_path, platform)
        with platform.log.open("a") as log:
            log.write(f"stray {rig.shown['enrollment token']} {rig.shown['join token unused']}\n")
            log.write(f"GET http://u:{PROXY_PASSWORD}@host/ {rig.shown['API token']}\n")
            log.write((rig.platform.data_dir / "master.key").read_text())
            log.write((rig.machine.data_dir / "identity" / "key.pem").read_text())
        found = _bundle(rig, rig.platform.data_dir)
        assert planted.leaks(rig.secrets(), where=found) == []
        assert "stray ••••" in _member(found, "log.txt")


def test_under_check_nothing_is_written(rig: Rig) -> None:
    archive = rig.folder / "never.tar.gz"
    real_platform.run_enlist(
        "doctor", "--data-dir", str(rig.platform.data_dir), "--bundle", str(archive), "--check",
        expect=75,
    )  # fmt: skip
    assert not archive.exists()
