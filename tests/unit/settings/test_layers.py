"""Settings: which layer wins, what is refused, and what is listed."""

import json
import pathlib

import pytest

from platform_server.settings import groups, layers, listing


def _load(
    folder: pathlib.Path,
    *,
    environ: dict[str, str] | None = None,
    flags: dict[str, str] | None = None,
) -> layers.Loaded:
    return layers.load(
        folder,
        config_file=None,
        environ=environ or {},
        flags={
            name: layers.Given(value=value, source=f"flag {name}")
            for name, value in (flags or {}).items()
        },
    )


def test_each_layer_wins_over_the_one_before_and_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.toml").write_text(
        "[platform]\nenvironment = 'test'\n[probe]\ninterval_seconds = 1\nconcurrency = 1\n"
        "failures = 1\ntimeout_seconds = 1\n[audit]\nenrollment_days = 1\n"
    )
    (tmp_path / "config.test.toml").write_text(
        "[probe]\ninterval_seconds = 2\nconcurrency = 2\nfailures = 2\ntimeout_seconds = 2\n"
    )
    (tmp_path / "config.dev.toml").write_text("[probe]\ninterval_seconds = 99\n")
    (tmp_path / "config.local.toml").write_text(
        "[probe]\ninterval_seconds = 3\nconcurrency = 3\nfailures = 3\n"
    )
    loaded = _load(
        tmp_path,
        environ={"ENLIST_PROBE__INTERVAL_SECONDS": "4", "ENLIST_PROBE__CONCURRENCY": "4"},
        flags={"probe.interval_seconds": "5"},
    )
    probe = loaded.settings.probe
    found = {
        name: (getattr(probe, name), loaded.source_of(f"probe.{name}").split("/")[-1])
        for name in ("interval_seconds", "concurrency", "failures", "timeout_seconds")
    }
    assert found == {
        "interval_seconds": (5, "flag probe.interval_seconds"),
        "concurrency": (4, "environment variable ENLIST_PROBE__CONCURRENCY"),
        "failures": (3, "config.local.toml"),
        "timeout_seconds": (2, "config.test.toml"),
    }
    assert loaded.source_of("audit.enrollment_days").endswith("/config.toml")
    assert loaded.source_of("log.level") == "default"


@pytest.mark.parametrize(
    ("environ", "words"),
    {
        "a misspelt section": (
            {"ENLIST_ENROLMENT__PORT": "8444"},
            ["enrolment.port", "ENLIST_ENROLMENT__PORT", "enrollment.port"],
        ),
        "a misspelt name": (
            {"ENLIST_AUDIT__ENROLMENT_DAYS": "3"},
            ["audit.enrolment_days", "Did you mean audit.enrollment_days?"],
        ),
        "a port below 1024": ({"ENLIST_ENROLLMENT__PORT": "443"}, ["enrollment.port", "1024"]),
        "a gateway's port below 1024": ({"ENLIST_GATEWAY__PORT": "443"}, ["gateway.port", "1024"]),
        "a gateway's port that is a word": (
            {"ENLIST_GATEWAY__PORT": "on"},
            ["gateway.port", "or off"],
        ),
        "a word for a number": (
            {"ENLIST_PROBE__FAILURES": "many"},
            ["probe.failures", "ENLIST_PROBE__FAILURES", "integer"],
        ),
        "half a pair of files": (
            {"ENLIST_API__TLS_KEY_FILE": "k"},
            ["api", "ENLIST_API__TLS_KEY_FILE", "together"],
        ),
        "a node id out of shape": (
            {"ENLIST_NODES__-__URL": "https://10.0.0.1:8443"},
            ["ENLIST_NODES__-__URL", "node id"],
        ),
        "a node without a pin": (
            {"ENLIST_NODES__WEB_1__URL": "https://10.0.0.1:8443"},
            ["nodes.web-1.pin"],
        ),
        "a public URL without TLS": (
            {"ENLIST_PLATFORM__PUBLIC_URL": "http://enlist.example"},
            ["platform.public_url", "https://"],
        ),
    }.values(),
)
def test_refuses_naming_the_setting_and_its_source(
    environ: dict[str, str], words: list[str], tmp_path: pathlib.Path
) -> None:
    with pytest.raises(layers.InvalidSettings) as refused:
        _load(tmp_path, environ=environ)
    assert [word for word in words if word not in str(refused.value)] == []


def test_a_file_that_was_named_must_be_there(tmp_path: pathlib.Path) -> None:
    with pytest.raises(layers.InvalidSettings, match="does not exist"):
        layers.load(tmp_path, config_file=tmp_path / "no.toml", environ={}, flags={})


def test_a_file_that_is_no_toml_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.toml").write_text("= broken")
    with pytest.raises(layers.InvalidSettings, match=r"config\.toml is not TOML"):
        _load(tmp_path)


def test_raising_the_ceiling_raises_the_narrower_limits_in_proportion(
    tmp_path: pathlib.Path,
) -> None:
    loaded = _load(tmp_path, environ={"ENLIST_ENROLLMENT__ATTEMPTS_PER_MINUTE": "1200"})
    assert loaded.settings.enrollment.failures_per_address == 300
    assert loaded.settings.enrollment.failures_per_token == 100
    assert "proportion" in loaded.source_of("enrollment.failures_per_token")


def test_a_limit_that_was_set_stays_when_the_ceiling_rises(tmp_path: pathlib.Path) -> None:
    loaded = _load(
        tmp_path,
        environ={
            "ENLIST_ENROLLMENT__ATTEMPTS_PER_MINUTE": "1200",
            "ENLIST_ENROLLMENT__FAILURES_PER_TOKEN": "11",
        },
    )
    assert loaded.settings.enrollment.failures_per_token == 11


def test_the_enrollment_port_turns_dispatch_on(tmp_path: pathlib.Path) -> None:
    assert not _load(tmp_path).settings.dispatch_enabled
    assert _load(tmp_path, flags={"enrollment.port": "8444"}).settings.dispatch_enabled


GATEWAYS: dict[str, tuple[dict[str, str], int | None]] = {
    "off without a word": ({}, None),
    "8445 beside the enrollment port": ({"enrollment.port": "8444"}, 8445),
    "any free one where that is any free one": ({"enrollment.port": "0"}, 0),
    "the one that is asked for": ({"enrollment.port": "8444", "gateway.port": "9000"}, 9000),
    "any free one on demand": ({"enrollment.port": "8444", "gateway.port": "0"}, 0),
    "none beside the enrollment port": ({"enrollment.port": "8444", "gateway.port": "off"}, None),
    "however off is written": ({"enrollment.port": "8444", "gateway.port": " Off"}, None),
    "off where nodes are taken by the API": ({"dispatch.enabled": "true"}, None),
    "on demand beside the API": ({"dispatch.enabled": "true", "gateway.port": "9000"}, 9000),
    "off while no nodes are taken": (
        {"enrollment.port": "8444", "gateway.port": "9000", "dispatch.enabled": "false"},
        None,
    ),
}


def test_a_gateway_that_is_false_in_the_file_is_off_and_not_on_any_port(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "config.toml").write_text("[enrollment]\nport = 9444\n[gateway]\nport = false\n")
    assert _load(tmp_path).settings.gateway_port is None


@pytest.mark.parametrize("case", GATEWAYS)
def test_the_gateway_opens(case: str, tmp_path: pathlib.Path) -> None:
    flags, port = GATEWAYS[case]
    assert _load(tmp_path, flags=flags).settings.gateway_port == port


def test_lists_are_read_from_commas_and_from_brackets(tmp_path: pathlib.Path) -> None:
    for text in ("10.0.0.0/8, fd00::/8", '["10.0.0.0/8", "fd00::/8"]'):
        loaded = _load(tmp_path, environ={"ENLIST_ENROLLMENT__TRUSTED_PROXIES": text})
        assert [str(one) for one in loaded.settings.enrollment.trusted_proxies] == [
            "10.0.0.0/8",
            "fd00::/8",
        ]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("postgresql://u:s3cret@db/enlist", "postgresql://u:••••@db/enlist"),
        ("postgresql://u:s3c@ret@db/enlist", "postgresql://u:••••@db/enlist"),
        ("postgresql://db/e?user=u&password=s3cret", "postgresql://db/e?user=u&password=••••"),
        (
            "postgresql://db/e?sslpassword=s3cret&user=u",
            "postgresql://db/e?sslpassword=••••&user=u",
        ),
    ],
)
def test_lists_every_setting_with_a_paragraph_and_hides_the_password(
    tmp_path: pathlib.Path, written: str, shown: str
) -> None:
    loaded = _load(tmp_path, environ={"ENLIST_STORE__DATABASE_URL": written})
    lines = list(listing.lines(loaded))
    assert [line.name for line in lines if not line.text] == []
    assert {line.name for line in lines} == set(layers.known_names())
    assert "s3cret" not in json.dumps([line.as_json() for line in lines])
    assert "s3cret" not in listing.as_toml(loaded)
    assert f'database_url = "{shown}"' in listing.as_toml(loaded)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        groups.Settings().platform.environment = "prod"  # type: ignore[misc]


def test_the_policy_file_of_the_cloud_has_a_variable_of_its_own(tmp_path: pathlib.Path) -> None:
    loaded = _load(tmp_path, environ={"ENLIST_CLOUD_POLICY": "/etc/enlist/policy.json"})
    assert loaded.settings.cloud.policy_file == "/etc/enlist/policy.json"
    assert loaded.source_of("cloud.policy_file") == "environment variable ENLIST_CLOUD_POLICY"
    both = {"ENLIST_CLOUD_POLICY": "/a", "ENLIST_CLOUD__POLICY_FILE": "/b"}
    assert _load(tmp_path, environ=both).settings.cloud.policy_file == "/b"
