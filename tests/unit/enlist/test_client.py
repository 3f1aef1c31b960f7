"""Both clients against the Platform in memory: the same calls, the same typed answers."""

import datetime
import inspect
import typing
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import enlist
from enlist import (
    audit,
    bundles,
    calls,
    cloud,
    cloud_connections,
    cloud_machines,
    cloud_resources,
    enrollments,
    errors,
    methods,
    nodes,
    operations,
    platforms,
    targets,
    tokens,
)
from tests.support import standin
from wire_protocol import admin, enrollment
from wire_protocol import bundles as wire_bundles
from wire_protocol import cloud as wire_cloud
from wire_protocol import cloud_machines as wire_cloud_machines
from wire_protocol import operations as wire_operations

TARGET = targets.remote("http://127.0.0.1:8440", token="secret-token")
BUILDERS = (
    nodes,
    enrollments,
    tokens,
    audit,
    platforms,
    bundles,
    operations,
    cloud,
    cloud_connections,
    cloud_machines,
    cloud_resources,
)
MODELS = {
    "operations": wire_operations,
    "nodes": wire_operations,
    "cloud": wire_cloud,
    "cloud_connections": wire_cloud,
    "cloud_machines": wire_cloud_machines,
    "cloud_resources": wire_cloud_machines,
}


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> standin.StandIn:
    stand_in = standin.StandIn(page=2)

    def transport(**_arguments: Any) -> httpx.MockTransport:
        return httpx.MockTransport(stand_in.answer)

    monkeypatch.setattr(httpx, "HTTPTransport", transport)
    monkeypatch.setattr(httpx, "AsyncHTTPTransport", transport)
    return stand_in


@pytest.fixture
def sync(platform: standin.StandIn) -> Iterator[enlist.Client]:
    del platform
    with enlist.Client(target=TARGET, pause=lambda _seconds: None) as opened:
        yield opened


async def _no_pause(_seconds: float) -> None:
    return


def test_a_list_is_followed_to_its_end(platform: standin.StandIn, sync: enlist.Client) -> None:
    for name in ("a", "b", "c", "d", "e"):
        platform.add_node(name)
    assert [node.node_id for node in sync.nodes.iterate()] == ["a", "b", "c", "d", "e"]
    assert len(platform.seen) == 3


async def test_the_async_twin_follows_it_too(platform: standin.StandIn) -> None:
    for name in ("a", "b", "c"):
        platform.add_node(name)
    async with enlist.AsyncClient(target=TARGET, pause=_no_pause) as opened:
        assert [node.node_id async for node in opened.nodes.iterate()] == ["a", "b", "c"]
        assert (await opened.nodes.get("b")).state == "ready"


def test_answers_are_typed(platform: standin.StandIn, sync: enlist.Client) -> None:
    platform.add_node("a")
    node = sync.nodes.get("a")
    assert isinstance(node, admin.Node)
    assert node.enrolled_at == standin.NOW
    issued = sync.enrollments.create("b", ttl_minutes=5, sources=["10.0.0.0/8"])
    assert issued.expires_at == standin.NOW + datetime.timedelta(minutes=5)
    assert platform.seen[-1].body["from"] == ["10.0.0.0/8"]


def test_the_token_goes_in_the_header_alone(platform: standin.StandIn, sync: enlist.Client) -> None:
    sync.nodes.list()
    assert platform.seen[0].headers["authorization"] == "Bearer secret-token"
    assert "secret-token" not in repr(sync.target)


def test_a_busy_platform_is_asked_again(platform: standin.StandIn, sync: enlist.Client) -> None:
    platform.faults = [standin.refusing("store-busy"), standin.refusing("unavailable")]
    assert sync.nodes.list().nodes == []
    assert len(platform.seen) == 3


def test_a_lost_answer_of_a_creation_shows_no_second_token(
    platform: standin.StandIn, sync: enlist.Client
) -> None:
    answered = platform.answer

    def lose(request: httpx.Request) -> httpx.Response:
        platform.seen.pop()
        answered(request)
        raise httpx.ReadError("cut")

    platform.faults = [lose]
    issued = sync.enrollments.create("a")
    assert (issued.token, issued.code) == (None, "token-already-shown")
    assert len(platform.enrollments) == 1


def test_check_mode_changes_nothing(platform: standin.StandIn, sync: enlist.Client) -> None:
    platform.add_node("a")
    checked = sync.check(nodes.remove("a"))
    assert [change.action for change in checked.changes] == ["remove"]
    assert platform.nodes["a"].state == "ready"


def test_labels_are_set_and_taken_away(platform: standin.StandIn, sync: enlist.Client) -> None:
    platform.add_node("a", labels={"old": "x"})
    assert sync.nodes.label("a", labels={"role": "web", "old": None}).labels == {"role": "web"}


def test_events_resume_behind_the_last_one(platform: standin.StandIn, sync: enlist.Client) -> None:
    platform.events = [standin.event(1), standin.event(2)]
    found = sync.events(after=0)
    assert [next(found).seq, next(found).seq] == [1, 2]
    platform.events.append(standin.event(3))
    assert next(found).seq == 3
    assert [seen.query["after"] for seen in platform.seen] == [["0"], ["2"]]


def test_events_end_when_the_platform_says_no(
    platform: standin.StandIn, sync: enlist.Client
) -> None:
    platform.faults = [standin.refusing("not-permitted")]
    with pytest.raises(errors.NotPermitted):
        next(sync.events())


def test_events_give_up_after_many_losses(platform: standin.StandIn, sync: enlist.Client) -> None:
    def cut(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("nobody")

    platform.faults = [cut] * 50
    with pytest.raises(errors.Temporary):
        next(sync.events())
    assert len(platform.seen) < 20


def test_an_event_in_pieces_is_one_event() -> None:
    tail = enlist.Client(target=TARGET).tail()
    raw = b'id: 7\r\ndata: {"seq":7,\r\ndata: "a":1}\r\n\r\n'
    found = [event for at in range(len(raw)) for event in tail.feed(raw[at : at + 1])]
    assert found == [{"seq": 7, "a": 1}]
    assert tail.after == 7


def test_an_endless_event_is_a_fault() -> None:
    tail = enlist.Client(target=TARGET).tail()
    with pytest.raises(errors.Fault):
        list(tail.feed(b"data: " + b"x" * 300_000))


def test_every_builder_names_the_model_that_its_type_promises() -> None:
    promised = 0
    for module in BUILDERS:
        for name, build in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("_") or build.__module__ != module.__name__:
                continue
            scope = {
                **vars(module),
                "admin": admin,
                "enrollment": enrollment,
                "calls": calls,
                "models": MODELS.get(module.__name__.rpartition(".")[2]),
                "bundles": wire_bundles,
            }
            hint = typing.get_type_hints(build, scope)["return"]
            (model,) = typing.get_args(hint)
            call = build(**_arguments(build))
            assert call.answer == f"{model.__module__.rpartition('.')[2]}:{model.__name__}"
            promised += 1
    assert promised > 15


def _arguments(build: Any) -> dict[str, Any]:
    texts: dict[str, Any] = {"labels": {}, "permissions": [], "data": b"a"}
    return {
        name: texts.get(name, "a")
        for name, parameter in inspect.signature(build).parameters.items()
        if parameter.default is inspect.Parameter.empty
    }


def test_both_twins_have_the_same_calls() -> None:
    for module in BUILDERS:
        found = {
            name: {key for key in vars(kind) if not key.startswith("_")}
            for name, kind in inspect.getmembers(module, inspect.isclass)
            if issubclass(kind, methods.Noun | methods.AsyncNoun)
        }
        pairs = [(name, found[f"Async{name}"]) for name in found if not name.startswith("Async")]
        assert pairs
        assert all(found[name] == twin for name, twin in pairs)


TARGETS = {
    "another scheme": "ftp://host",
    "http beyond loopback": "http://10.0.0.1:8440",
    "a path": "https://host/api",
    "a password": "https://a:b@host",
    "no host": "https://",
    "a port out of range": "https://host:99999",
    "a plain word": "host",
}


@pytest.mark.parametrize("text", TARGETS.values(), ids=TARGETS)
def test_an_address_out_of_shape_is_refused(text: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        targets.parse(text)
    assert "a:b" not in str(caught.value)


def test_a_pin_is_taken_in_every_form() -> None:
    loud = f"SHA256:{':'.join(['AB'] * 32)}"
    assert targets.parse("https://h", pins=[loud]).pins == {standin.PIN}
    with pytest.raises(errors.Invalid):
        targets.parse("https://h", pins=["sha256:12"])


def test_a_socket_is_an_address_too() -> None:
    target = targets.parse("unix:///run/x/platform.sock", token="t")
    assert str(target.socket) == "/run/x/platform.sock"
    assert target.token is None
