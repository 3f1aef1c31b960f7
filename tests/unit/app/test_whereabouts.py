"""What a Platform says of where machines reach it, by what it listens on and what it takes."""

import dataclasses
import pathlib
import types
from typing import Any, cast

import pytest

from platform_server.app import certificates, enrolling, orders
from platform_server.settings import groups

API = "https://192.0.2.1:8440"
PORT = "https://192.0.2.1:8444"
PUBLIC = "https://enlist.example.org"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A start, and what `/platform` shows then."""

    api: str
    port: str | None
    dispatch: bool | None
    url: str | None
    pins: tuple[str, ...]
    authenticate: str = "pins"
    api_pins: tuple[str, ...] = ("api",)


CASES = {
    "the port is open": Case(api=API, port=PORT, dispatch=None, url=PORT, pins=("port",)),
    "nodes come to the API": Case(api=API, port=None, dispatch=True, url=API, pins=("api",)),
    "nodes are off": Case(api=API, port=None, dispatch=None, url=None, pins=()),
    "nodes are turned off by a setting": Case(
        api=API, port=PORT, dispatch=False, url=None, pins=()
    ),
    "TLS ends in a proxy": Case(
        api=PUBLIC, port=None, dispatch=True, url=PUBLIC, pins=(), api_pins=()
    ),
    "others' TLS serves the name": Case(
        api=PUBLIC, port=None, dispatch=True, url=PUBLIC, pins=(), authenticate="public-roots"
    ),
    "the API is plain": Case(
        api="http://127.0.0.1:8440", port=None, dispatch=True, url=None, pins=(), api_pins=()
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_pins_are_shown_only_of_where_nodes_are_taken(case: Case) -> None:
    settings: dict[str, Any] = {"enrollment": {"authenticate": case.authenticate}}
    if case.port is not None:
        settings["enrollment"]["port"] = 8444
    if case.dispatch is not None:
        settings["dispatch"] = {"enabled": case.dispatch}
    identity = types.SimpleNamespace(fingerprint="f") if case.port is not None else None
    shown = enrolling.Whereabouts(
        given=_orders(case),
        settings=groups.Settings.model_validate(settings),
        kept=cast(
            "certificates.Certificates",
            types.SimpleNamespace(
                enrollment=identity,
                enrollment_pins=("port",),
                gateway=None,
                api_pins=case.api_pins,
            ),
        ),
    ).shown()
    assert (shown.enrollment_url, tuple(shown.pins)) == (case.url, case.pins)
    assert tuple(shown.api_pins) == case.api_pins
    assert (shown.certificate_sha256 is not None) == (shown.enrollment_url == PORT)


def _orders(case: Case) -> orders.Orders:
    return orders.Orders(
        data_dir=pathlib.Path("unused"),
        config_file=None,
        flags={},
        api_fds=[],
        local_fd=-1,
        enroll_fd=-1,
        ready_fd=-1,
        api_url=case.api,
        api_speaks_tls=case.api == API,
        api_names=[],
        enrollment_url=case.port,
        enrollment_names=[],
    )
