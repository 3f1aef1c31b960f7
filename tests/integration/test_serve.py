"""`enlist serve` as processes: what it prints, what it survives, what it refuses to start over."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import sqlite3
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import psutil
import pytest
from cryptography import x509

from tests.support import certificates, real_platform
from wire_protocol import pins

ENGINE = "platform_server engine"
LISTENER = "platform_server.listener"


def _local(platform: real_platform.RealPlatform) -> httpx.Client:
    """A client that connects anew for each call: a kept connection ends with its engine."""
    return httpx.Client(
        transport=httpx.HTTPTransport(
            uds=str(platform.socket), limits=httpx.Limits(max_keepalive_connections=0)
        ),
        base_url="http://enlist",
        timeout=20,
    )


def _until(true: Callable[[], bool], *, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)  # another process works; nobody here could be told


def _refused(
    data_dir: pathlib.Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Exit code and stderr of a Platform that must not start; nothing may stand on stdout."""
    done = subprocess.run(
        [
            *real_platform.ENLIST,
            "serve",
            *("-o", "json", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0"),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=real_platform.clean_environment(environment),
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_says_in_one_line_where_it_listens_and_nothing_else(tmp_path: pathlib.Path) -> None:
    with real_platform.running(tmp_path / "p") as platform:
        assert set(platform.said) >= {
            "version",
            "api",
            "enrollment",
            "gateway",
            "bundle",
            "pins",
            "gateway_pins",
            "data_dir",
        }
        assert platform.said["gateway"].startswith("https://127.0.0.1:")
        assert platform.said["data_dir"] == str(tmp_path / "p")
        assert httpx.get(f"{platform.said['api']}/healthz").json()["status"] == "ok"
        assert str(platform.said["pins"][0]).startswith("sha256:")
        platform.process.send_signal(signal.SIGTERM)
        assert platform.process.wait(15) == 0
        assert platform.process.stdout is not None
        assert platform.process.stdout.read() == b""


def test_works_on_either_store(tmp_path: pathlib.Path, store_url: str) -> None:
    with real_platform.running(tmp_path / "p", database_url=store_url) as platform:
        said = json.loads(platform.enlist("nodes", "enroll-token", "web-1", "-o", "json"))
        assert said["platform_url"] == platform.said["enrollment"]
        assert json.loads(platform.enlist("audit", "verify", "-o", "json"))["intact"] is True


def test_makes_everything_private_from_the_first_byte(tmp_path: pathlib.Path) -> None:
    before = os.umask(0)
    try:
        with real_platform.running(tmp_path / "p"):
            lax = [
                str(path)
                for path in [tmp_path / "p", *(tmp_path / "p").rglob("*")]
                if path.stat().st_mode & 0o077
            ]
            assert lax == []
    finally:
        os.umask(before)


def test_children_stay_in_the_group_and_leave_with_it(tmp_path: pathlib.Path) -> None:
    platform = real_platform.start(tmp_path / "p", "--enrollment-workers", "2")
    family = platform.family()
    assert len(family) == 4
    assert {os.getpgid(one.pid) for one in family} == {platform.process.pid}
    started = time.monotonic()
    os.killpg(platform.process.pid, signal.SIGTERM)
    assert platform.process.wait(15) == 0
    assert time.monotonic() - started < 10
    assert psutil.wait_procs(family, timeout=1)[1] == []
    platform.stop()


def test_children_do_not_outlive_a_killed_host(tmp_path: pathlib.Path) -> None:
    platform = real_platform.start(tmp_path / "p")
    family = platform.family()
    platform.process.kill()
    platform.process.wait(5)
    assert psutil.wait_procs(family, timeout=12)[1] == []
    platform.stop()
    with real_platform.running(tmp_path / "p") as again:  # nothing is left in the way
        assert again.said["pins"] == platform.said["pins"]


def test_a_hangup_replaces_the_engine_and_keeps_ports_listeners_and_callers(
    tmp_path: pathlib.Path, store_url: str
) -> None:
    with real_platform.running(tmp_path / "p", database_url=store_url) as platform:
        before = platform.child(ENGINE).pid
        listener = platform.child(LISTENER).pid
        (tmp_path / "p" / "config.toml").write_text("[platform]\nenvironment = 'test'\n")
        platform.process.send_signal(signal.SIGHUP)
        with _local(platform) as client:
            statuses = set()
            deadline = time.monotonic() + 30
            while client.get("/api/v1/platform").json()["environment"] != "test":
                statuses.add(client.get("/healthz").status_code)
                assert time.monotonic() < deadline
            assert statuses <= {200}
        _until(lambda: before not in [one.pid for one in platform.family()])
        assert platform.child(LISTENER).pid == listener


def test_a_hangup_with_broken_settings_changes_nothing(tmp_path: pathlib.Path) -> None:
    with real_platform.running(tmp_path / "p") as platform:
        before = platform.child(ENGINE).pid
        (tmp_path / "p" / "config.toml").write_text("[probe]\nintervall_seconds = 1\n")
        platform.process.send_signal(signal.SIGHUP)
        _until(lambda: "The engine is not replaced" in platform.log.read_text())
        assert platform.child(ENGINE).pid == before
        assert "probe.interval_seconds" in platform.log.read_text()


def test_a_killed_engine_is_started_again_and_callers_wait_for_it(tmp_path: pathlib.Path) -> None:
    with real_platform.running(tmp_path / "p") as platform:
        platform.enlist("tokens", "create", "--permission", "nodes.view")
        for _ in range(2):
            platform.child(ENGINE).kill()
            assert len(json.loads(platform.enlist("tokens", "list", "-o", "json"))["tokens"]) == 1


def test_a_killed_listener_is_started_again(tmp_path: pathlib.Path) -> None:
    with real_platform.running(tmp_path / "p") as platform:
        before = platform.child(LISTENER)
        before.kill()
        _until(
            lambda: (
                LISTENER in str([real_platform.command_of(one) for one in platform.family()[1:]])
            )
        )
        _until(lambda: _answers_tls(platform.enrollment_url))
        assert platform.child(LISTENER).pid != before.pid


def test_an_engine_that_keeps_dying_ends_the_platform(tmp_path: pathlib.Path) -> None:
    code, said = _refused(tmp_path / "p", environment={"ENLIST_CRASH_AT": "engine.built"})
    assert code == 1
    platform = real_platform.start(tmp_path / "p")
    killed: set[int] = set()
    while platform.process.poll() is None and len(killed) < 6:
        _until(lambda: platform.process.poll() is not None or _engines(platform) - killed != set())
        for engine in _engines(platform) - killed:
            killed.add(engine)
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(engine, signal.SIGKILL)
    assert platform.process.wait(30) == 1, said
    platform.stop()
    assert "5 times within a minute" in platform.log.read_text()


@pytest.mark.parametrize(
    "point", ["engine.store-open", "master-key.made", "engine.keys-open", "engine.serving"]
)
def test_a_start_that_was_killed_anywhere_is_done_again(point: str, tmp_path: pathlib.Path) -> None:
    _refused(tmp_path / "p", environment={"ENLIST_CRASH_AT": point})
    with real_platform.running(tmp_path / "p") as platform:
        assert json.loads(platform.enlist("audit", "verify", "-o", "json"))["intact"] is True


@pytest.mark.parametrize(
    "point",
    [
        "master-key.begun",
        "master-key.both-kept",
        "master-key.rewrapped-some",
        "master-key.rewrapped",
    ],
)
def test_a_change_of_the_master_key_that_was_killed_anywhere_is_finished_by_the_next_engine(
    point: str, tmp_path: pathlib.Path, store_url: str
) -> None:
    platform = real_platform.start(
        tmp_path / "p", database_url=store_url, environment={"ENLIST_CRASH_AT": point}
    )
    first = platform.said["pins"]
    old = (tmp_path / "p" / "master.key").read_text()
    with _local(platform) as client:
        client.timeout = httpx.Timeout(3)
        with pytest.raises(httpx.HTTPError):
            client.post("/api/v1/platform/rotate-master-key")
    real_platform.kill_group(platform.process)
    platform.stop()
    with real_platform.running(tmp_path / "p", database_url=store_url) as again:
        assert again.said["pins"] == first
        # on PostgreSQL it waits until the killed engine counts as gone
        _until(lambda: (tmp_path / "p" / "master.key").read_text().count("\n") == 1, seconds=50)
        assert (tmp_path / "p" / "master.key").read_text() != old
        again.enlist("nodes", "enroll-token", "web-1")


def test_a_busy_port_is_named(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments in (
            ("--listen", f"127.0.0.1:{port}"),
            ("--enrollment-port", str(port)),
        ):
            code, said = _refused(tmp_path / "p", *arguments)
            assert code == 2
            assert str(port) in said
    assert not (tmp_path / "p" / "master.key").exists()


def test_a_second_engine_on_one_sqlite_file_is_refused(tmp_path: pathlib.Path) -> None:
    with real_platform.running(tmp_path / "p"):
        url = f"sqlite:///{tmp_path}/p/enlist.db"
        code, said = _refused(tmp_path / "other", "--database-url", url)
        assert (code, "Another engine works on" in said) == (4, True)
        assert not (tmp_path / "other" / "master.key").exists()


def test_two_engines_share_one_postgresql_with_a_copied_key(
    tmp_path: pathlib.Path, postgres_url: str
) -> None:
    with real_platform.running(tmp_path / "one", database_url=postgres_url) as one:
        code, said = _refused(tmp_path / "two", "--database-url", postgres_url)
        assert (code, "master key" in said) == (6, True)
        assert not (tmp_path / "two" / "master.key").exists()
        (tmp_path / "two" / "master.key").write_bytes((tmp_path / "one/master.key").read_bytes())
        (tmp_path / "two" / "master.key").chmod(0o600)
        with real_platform.running(tmp_path / "two", database_url=postgres_url) as two:
            assert one.said["pins"] == two.said["pins"]
            one.enlist("platform", "rotate-master-key", "--yes")
            keys = [tmp_path / name / "master.key" for name in ("one", "two")]
            _until(
                lambda: (
                    keys[0].read_text() == keys[1].read_text()
                    and keys[0].read_text().count("\n") == 1
                ),
                seconds=40,
            )
            two.enlist("nodes", "enroll-token", "web-1")
            assert "web-1" in one.enlist("nodes", "list")


def test_a_store_of_a_newer_enlist_is_refused(tmp_path: pathlib.Path) -> None:
    with real_platform.running(tmp_path / "p"):
        pass
    database = sqlite3.connect(tmp_path / "p" / "enlist.db")
    with database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(migrations)")]
        newest = dict(
            zip(
                columns,
                database.execute(
                    "SELECT * FROM migrations ORDER BY version DESC LIMIT 1"
                ).fetchone(),
                strict=True,
            )
        )
        newest["version"] = 9999
        marks = ", ".join("?" for _ in newest)
        database.execute(
            f"INSERT INTO migrations({', '.join(newest)}) VALUES ({marks})",  # noqa: S608 - a test
            list(newest.values()),
        )
    database.close()
    code, said = _refused(tmp_path / "p")
    assert (code, "newer Enlist" in said) == (6, True)


def test_a_missing_master_key_over_an_existing_store_is_refused(tmp_path: pathlib.Path) -> None:
    with real_platform.running(tmp_path / "p"):
        pass
    (tmp_path / "p" / "master.key").unlink()
    code, said = _refused(tmp_path / "p")
    assert (code, "master.key is missing" in said) == (6, True)
    assert not (tmp_path / "p" / "master.key").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    {
        "a gateway where no nodes are taken": (["--gateway-port"], "--enrollment-port"),
        "a gateway on the enrollment port": (
            ["--enrollment-port", "9444", "--gateway-port", "9444"],
            "--gateway-port",
        ),
        "a gateway's port below 1024": (
            ["--enrollment-port", "0", "--gateway-port", "443"],
            "gateway.port (from flag --gateway-port)",
        ),
        "a gateway's port that is a word": (
            ["--enrollment-port", "0", "--gateway-port", "on"],
            "gateway.port (from flag --gateway-port)",
        ),
        "a bundle port on the enrollment port": (
            ["--enrollment-port", "9444", "--bundle-port", "9444"],
            "--bundle-port",
        ),
        "a port below 1024": (["--enrollment-port", "443"], "1024"),
        "an address out of shape": (["--listen", "8440"], "HOST:PORT"),
        "an address of another machine": (["--listen", "192.0.2.1:8440"], "does not exist"),
        "a store of another kind": (["--database-url", "mysql://x"], "sqlite:///"),
        "a path that is no path": (["--database-url", "sqlite:///"], "sqlite:///"),
        "a certificate that is not there": (
            ["--tls-cert-file", "/no/c", "--tls-key-file", "/no/k"],
            "/no/c",
        ),
        "half a certificate": (["--tls-cert-file", "/no/c"], "together"),
        "a settings file that is not there": (["--config", "/no/config"], "/no/config"),
    }.values(),
)
def test_wrong_use_is_named_and_nothing_is_started(
    arguments: list[str], words: str, tmp_path: pathlib.Path
) -> None:
    code, said = _refused(tmp_path / "p", *arguments)
    assert (code, words in said) == (2, True), said
    assert not (tmp_path / "p" / "master.key").exists() or "/no/c" in said


def test_behind_a_public_url_the_port_on_loopback_speaks_http_still(
    tmp_path: pathlib.Path,
) -> None:
    """The TLS of that name ends in a proxy in front."""
    public = "https://enlist.example.org"
    with real_platform.running(tmp_path / "p", "--public-url", public) as platform:
        assert (platform.said["api"], platform.said["api_pins"]) == (public, [])
        ports = {
            kept.laddr.port
            for kept in psutil.Process(platform.process.pid).net_connections("tcp")
            if kept.status == psutil.CONN_LISTEN
        }
        public_ports = {httpx.URL(platform.said[name]).port for name in ("enrollment", "gateway")}
        (port,) = ports - public_ports
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").json()["status"] == "ok"


def test_beyond_loopback_the_api_is_https_with_a_pinned_key(tmp_path: pathlib.Path) -> None:
    with real_platform.running(tmp_path / "p", "--listen", "0.0.0.0:0") as platform:
        assert platform.said["api"].startswith("https://")
        port = int(platform.said["api"].rpartition(":")[2])
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/healthz")
        certificate = ssl.get_server_certificate(("127.0.0.1", port))
        presented = x509.load_pem_x509_certificate(certificate.encode())
        assert pins.pin_of_certificate(presented) in platform.said["api_pins"]
        trusting = ssl.create_default_context(cadata=certificate)
        answer = httpx.get(f"https://127.0.0.1:{port}/healthz", verify=trusting)
        assert answer.status_code == 200
        old = ssl.create_default_context(cadata=certificate)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"https://127.0.0.1:{port}/healthz", verify=old)


def test_a_certificate_of_the_operators_own_is_read_again_when_it_changes(
    tmp_path: pathlib.Path,
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    first = _write_pair(cert, key)
    with real_platform.running(
        tmp_path / "p", "--tls-cert-file", str(cert), "--tls-key-file", str(key)
    ) as platform:
        port = int(platform.said["api"].rpartition(":")[2])

        def served() -> str:
            return ssl.get_server_certificate(("127.0.0.1", port))

        assert served().strip() == first.strip()
        cert.write_text("broken")
        _until(lambda: "not usable" in platform.log.read_text())
        assert served().strip() == first.strip()
        second = _write_pair(cert, key)
        _until(lambda: served().strip() == second.strip())


def test_prints_every_setting_with_its_source(tmp_path: pathlib.Path) -> None:
    printed = real_platform.run_enlist(
        *("serve", "--print-config", "-o", "json", "--data-dir", str(tmp_path / "p")),
        *("--enrollment-port", "9444"),
        environment={"ENLIST_PROBE__INTERVAL_SECONDS": "7"},
    )
    lines: dict[str, Any] = {line["name"]: line for line in json.loads(printed)}
    assert lines["enrollment.port"]["source"] == "flag --enrollment-port"
    assert lines["probe.interval_seconds"]["value"] == 7
    assert "ENLIST_PROBE__INTERVAL_SECONDS" in lines["probe.interval_seconds"]["source"]
    assert lines["audit.enrollment_entries"]["default"] == 500
    assert not (tmp_path / "p").exists()


AWAY = "postgresql://enlist:hunter2@127.0.0.1:1/enlist"


def test_a_database_that_is_away_is_temporary_and_a_wrong_one_needs_a_person(
    tmp_path: pathlib.Path, postgres_url: str
) -> None:
    code, said = _refused(tmp_path / "p", "--database-url", AWAY)
    assert (code, "once the database answers" in said, "hunter2" in said) == (75, True, False)
    code, said = _refused(tmp_path / "p", "--database-url", f"{postgres_url}_missing")
    assert (code, "CREATE DATABASE" in said) == (6, True)


@pytest.mark.timeout(180)
def test_an_engine_that_finds_no_database_is_started_until_there_is_one(
    tmp_path: pathlib.Path, postgres_url: str
) -> None:
    """More often than a crashing one would be, and without ending the Platform."""
    (tmp_path / "p").mkdir(mode=0o700)
    config = tmp_path / "p" / "config.toml"
    config.write_text(f"[store]\ndatabase_url = '{postgres_url}'\n")
    with real_platform.running(tmp_path / "p") as platform:
        config.write_text(f"[store]\ndatabase_url = '{AWAY}'\n")
        platform.child(ENGINE).kill()
        _until(lambda: platform.log.read_text().count("The engine does not start") > 5, seconds=100)
        config.write_text(f"[store]\ndatabase_url = '{postgres_url}'\n")
        with _local(platform) as client:
            client.timeout = httpx.Timeout(60)
            assert client.get("/readyz").status_code == 200


def test_the_database_password_stands_in_no_process_list(
    tmp_path: pathlib.Path, postgres_url: str
) -> None:
    (tmp_path / "p").mkdir(mode=0o700)
    (tmp_path / "p" / "config.toml").write_text(f"[store]\ndatabase_url = '{postgres_url}'\n")
    with real_platform.running(tmp_path / "p") as platform:
        shown = [real_platform.command_of(one) for one in platform.family()]
        assert [line for line in shown if postgres_url in line] == []
        assert postgres_url not in platform.log.read_text()


def _write_pair(cert: pathlib.Path, key: pathlib.Path) -> str:
    """A new certificate with its key, each written aside and renamed; gives the certificate."""
    made = certificates.issue()
    for path, text in ((key, made.key_pem), (cert, made.pem)):
        aside = path.with_suffix(".new")
        aside.write_text(text)
        aside.replace(path)
    return made.pem


def _engines(platform: real_platform.RealPlatform) -> set[int]:
    try:
        return {one.pid for one in platform.family()[1:] if ENGINE in real_platform.command_of(one)}
    except psutil.NoSuchProcess:
        return set()


def _answers_tls(url: str) -> bool:
    host, _, port = url.removeprefix("https://").rpartition(":")
    try:
        return bool(ssl.get_server_certificate((host, int(port)), timeout=5))
    except OSError:
        return False
