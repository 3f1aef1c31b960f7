"""The Platform's units under the real service manager.

00 the edge runs under an account that can read nothing of the data directory
01 a restart keeps every port, and who connects meanwhile is served
02 a new TLS key reaches listener and bundle server, though they hold it as a credential
03 what is killed comes back, its port open all the while
04 a stopped Platform stays stopped, whoever connects; the edge answers for it
05 what only a person can mend is not tried again, and goes on when it is mended
06 a captured Platform account reads nothing of root's by its folder, and does not hold systemd up
"""

import base64
import json
import time

from tests.support.machines import installing, machine

SOCKETS = ("enlist-platform.socket", "enlist-gateway.socket", "enlist-enroll.socket")
DATA = "/var/lib/enlist/platform"
STOP_SECONDS = 10.0


def _shown(machine: machine.Machine, unit: str, name: str) -> str:
    return machine.run("systemctl", "show", "--property", name, "--value", unit).strip()


def _active(machine: machine.Machine, unit: str) -> str:
    return _shown(machine, unit, "ActiveState")


def _since(machine: machine.Machine) -> list[str]:
    """When each socket was opened."""
    return [_shown(machine, one, "ActiveEnterTimestampMonotonic") for one in SOCKETS]


def _settled(machine: machine.Machine) -> None:
    """Nothing starts the edge anew any more for a change of its files."""
    machine.until(
        *("sh", "-c"),
        'test "$(systemctl show -P ActiveState enlist-edge-tls.service)" = inactive'
        " && test -z \"$(systemctl list-jobs --no-legend --plain 'enlist-*')\"",
    )


def _trust(machine: machine.Machine) -> str:
    """The status with which the listener answers the trust question."""
    return machine.run(
        *("curl", "-sk", "-m", "30", "-o", "/dev/null", "-w", "%{http_code}"),
        *("-X", "POST", "-H", "content-type: application/json", "-d", "{}"),
        "https://127.0.0.1:8444/api/v1/trust",
    ).strip()


def _bundles(machine: machine.Machine) -> str:
    return machine.run(
        *("curl", "-sk", "-m", "30", "-o", "/dev/null", "-w", "%{http_code}"),
        "https://127.0.0.1:8446/install.sh",
    ).strip()


def _health(machine: machine.Machine) -> None:
    machine.run("curl", "-sf", "-m", "60", "http://127.0.0.1:8440/healthz", seconds=90)


def test_00_the_edge_can_read_nothing_of_the_data_directory(
    platform: installing.Platform,
) -> None:
    on = platform.machine
    for unit in ("enlist-listener.service", "enlist-bundles.service"):
        pid = _shown(on, unit, "MainPID")
        assert on.run("stat", "-c", "%U", f"/proc/{pid}").strip() == "enlist-edge"
        links = on.run("cat", f"/proc/{pid}/net/dev").splitlines()[2:]
        assert [line.partition(":")[0].strip() for line in links] == ["lo"]
    for path in ("", "/bundles", "/run/listener/tls.pem", "/master.key"):
        assert on.attempt("runuser", "-u", "enlist-edge", "--", "ls", f"{DATA}{path}").code != 0
    assert on.run("stat", "-c", "%a %U %G", "/run/enlist/enroll.sock").split() == [
        *("660", "enlist-platform", "enlist-edge")
    ]


def test_01_a_restart_keeps_every_port_and_serves_who_connects_meanwhile(
    platform: installing.Platform,
) -> None:
    on = platform.machine
    _settled(on)
    before, listener = _since(on), _shown(on, "enlist-listener.service", "MainPID")
    on.run("systemctl", "restart", "--no-block", "enlist-platform.service")
    _health(on)
    assert _trust(on) == "200"
    on.run("systemctl", "start", "enlist-platform.service", seconds=90)
    assert _since(on) == before
    assert _shown(on, "enlist-listener.service", "MainPID") == listener


def test_02_a_new_key_reaches_the_edge(platform: installing.Platform) -> None:
    on = platform.machine
    platform.enlist("platform", "rotate-tls-key", "--now", "--yes")
    (new,) = json.loads(platform.enlist("nodes", "platform", "-o", "json"))["pins"]
    pinned = base64.b64encode(bytes.fromhex(new.removeprefix("sha256:"))).decode()
    for port in (8444, 8446):
        on.until(
            *("curl", "-sk", "-m", "20", "-o", "/dev/null", "--pinnedpubkey", f"sha256//{pinned}"),
            f"https://127.0.0.1:{port}/",
        )
    assert _trust(on) == "200"


def test_03_what_is_killed_comes_back_behind_an_open_port(
    platform: installing.Platform,
) -> None:
    on = platform.machine
    for unit in ("enlist-listener.service", "enlist-bundles.service"):
        on.run("systemctl", "kill", "--signal=KILL", unit)
    assert (_trust(on), _bundles(on)) == ("200", "200")
    on.run("pkill", "--signal", "KILL", "--full", "platform_server engine")
    _health(on)


def test_04_a_stopped_platform_stays_stopped(platform: installing.Platform) -> None:
    on = platform.machine
    started = time.monotonic()
    on.run("systemctl", "stop", "enlist-platform.service")
    assert time.monotonic() - started < STOP_SECONDS
    assert (_trust(on), _bundles(on)) == ("503", "200")
    assert on.attempt("curl", "-s", "http://127.0.0.1:8440/healthz").code == 7  # nobody listens
    assert {_active(on, one) for one in ("enlist-platform.service", *SOCKETS)} == {"inactive"}
    on.run("systemctl", "start", "enlist-platform.service", seconds=90)
    assert _trust(on) == "200"
    _health(on)


def test_05_what_a_person_must_mend_is_not_tried_again(platform: installing.Platform) -> None:
    on = platform.machine
    on.shell(f"printf '[nonsense]\\nx = 1\\n' > {DATA}/config.local.toml")
    on.shell(f"chown enlist-platform: {DATA}/config.local.toml")
    try:
        assert on.attempt("systemctl", "restart", "enlist-platform.service", seconds=90).code != 0
        assert on.attempt("curl", "-s", "http://127.0.0.1:8440/healthz").code == 7
        assert _active(on, "enlist-platform.service") == "failed"
        assert _shown(on, "enlist-platform.service", "ExecMainStatus") == "2"
        assert "There is no setting nonsense.x" in on.journal("enlist-platform.service")
    finally:
        on.shell(f"rm {DATA}/config.local.toml")
        on.run("systemctl", "start", "enlist-platform.service", seconds=90)
    _health(on)


def _as_account(on: machine.Machine, command: str) -> None:
    on.run("runuser", "-u", "enlist-platform", "--", "sh", "-c", command)


def test_06_nothing_of_roots_is_read_by_way_of_the_platforms_folder(
    platform: installing.Platform,
) -> None:
    on = platform.machine
    _settled(on)
    key = f"{DATA}/run/listener/tls.pem"
    copied = on.run("sha256sum", "/run/enlist-edge/tls.pem")
    assert copied.split()[0] == on.run("sha256sum", key).split()[0]
    assert on.run("stat", "-c", "%a %U", "/run/enlist-edge").split() == ["700", "root"]
    _as_account(on, f"cp -p {key} {key}.kept")
    try:
        for odd in (f"ln -s /etc/shadow {key}", f"mkfifo {key}"):
            _as_account(on, f"rm -f {key}; {odd}")
            assert on.attempt("systemctl", "start", "enlist-edge-key.service").code != 0
            assert on.run("sha256sum", "/run/enlist-edge/tls.pem") == copied
            on.run("systemctl", "restart", "enlist-listener.service")
            assert _trust(on) == "200", "it goes on with the former copy"
    finally:
        _as_account(on, f"rm -f {key}; mv {key}.kept {key}")
        on.run("systemctl", "start", "enlist-edge-key.service")
    _as_account(on, f"mv {DATA}/bundles {DATA}/bundles.kept; ln -s /root {DATA}/bundles")
    try:
        assert on.attempt("systemctl", "restart", "enlist-bundles.service").code != 0
        assert "is not the Platform's folder of bundles" in on.journal("enlist-bundles.service")
    finally:
        _as_account(on, f"rm {DATA}/bundles; mv {DATA}/bundles.kept {DATA}/bundles")
    on.run("systemctl", "restart", "enlist-bundles.service")
    assert _bundles(on) == "200"
