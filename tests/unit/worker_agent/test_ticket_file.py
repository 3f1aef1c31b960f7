"""A machine that was ordered joins by its ticket: where it goes, and what is refused."""

import base64
import dataclasses
import datetime
import json
import pathlib
from typing import Any

import pytest

from operator_cli import pending_join
from runtime_kit import secret as secret_kit
from wire_protocol import enrollment, enrollment_token, ids, join_token, pins, tickets
from worker_agent.enrollment import plan, question, stored, ticket_file, wish
from worker_agent.identity import own
from worker_agent.settings import failures, paths

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
DOCUMENT = tickets.Document(
    platform_id=ids.PlatformId("plt_1"),
    installation="in-1",
    infra="default",
    node_id=ids.NodeId("demo"),
    operation_id="op-1",
    attempt=1,
    url="https://192.0.2.10:8444",
    pins=(pins.Pin("sha256:" + "ab" * 32),),
    trust_key_ids=(ids.KeyId("0123456789abcdef"),),
    issued_at=NOW,
    expires_at=NOW + datetime.timedelta(hours=1),
    bundle=None,
    token=enrollment_token.new(),
)
TICKET = tickets.Ticket(
    content=DOCUMENT.to_bytes(), signature=b"s" * 64, key_id=ids.KeyId("0123456789abcdef")
)
INSTANCE = {"cloud": "hetzner", "id": "4711", "region": "fsn1"}


def text(**changes: Any) -> str:
    """The file that first boot writes."""
    return json.dumps({**TICKET.to_wire(), "instance": INSTANCE, **changes})


def planned() -> plan.Join:
    """A join by that file on a machine that has nothing."""
    found = plan.decide(
        wish.parse(wish.Given(ticket=secret_kit.Secret(text()))), stored=stored.Stored()
    )
    assert isinstance(found, plan.Join)
    return found


def test_the_ticket_stands_in_place_of_a_join_token() -> None:
    found = planned()
    assert (found.url, found.node_id, found.token) == (DOCUMENT.url, "demo", DOCUMENT.token)
    assert found.pins == DOCUMENT.pins
    assert found.trust_key_ids == DOCUMENT.trust_key_ids


def test_the_platform_gets_the_ticket_to_the_letter_and_the_machines_own_word(
    tmp_path: pathlib.Path,
) -> None:
    identity = own.ensure(
        paths.Paths(folder=tmp_path), node_id=ids.NodeId("demo"), addresses=(), now=NOW, warn=print
    )
    raw = question.request_body(planned(), identity=identity)
    sent = enrollment.EnrollRequest.model_validate_json(raw)
    assert sent.ticket is not None
    assert base64.b64decode(sent.ticket.document) == TICKET.content
    assert base64.b64decode(sent.ticket.signature) == TICKET.signature
    assert sent.instance == INSTANCE


def test_without_a_ticket_nothing_of_it_is_sent(tmp_path: pathlib.Path) -> None:
    identity = own.ensure(
        paths.Paths(folder=tmp_path), node_id=ids.NodeId("demo"), addresses=(), now=NOW, warn=print
    )
    bare = dataclasses.replace(planned(), presented=None)
    assert {"ticket", "instance"}.isdisjoint(
        json.loads(question.request_body(bare, identity=identity))
    )


@pytest.mark.parametrize(
    "raw",
    [
        "{}",
        "enj_abc",
        text(instance=["id"]),
        text(instance={"id": "x" * 300}),
        text(instance={"ID; rm": "x"}),
        text(document="bm8="),
    ],
    ids=["empty", "a join token", "a list", "a long value", "a strange name", "no document"],
)
def test_what_is_no_ticket_is_refused_without_repeating_it(raw: str) -> None:
    with pytest.raises(failures.Misuse) as refused:
        wish.parse(wish.Given(ticket=secret_kit.Secret(raw)))
    assert str(refused.value).startswith("--ticket-file: ")
    assert DOCUMENT.token.text() not in str(refused.value)


def test_a_ticket_and_a_join_token_are_refused_together() -> None:
    other = join_token.encode(ticket_file.parse(text()).join)
    with pytest.raises(failures.Misuse, match="give only one"):
        wish.parse(
            wish.Given(ticket=secret_kit.Secret(text()), join_token=secret_kit.Secret(other))
        )


def test_an_interrupted_join_by_ticket_is_finished_later() -> None:
    kept = pending_join.parse(pending_join.document(ticket=text()))
    assert ticket_file.parse(kept["ticket"]).presented.instance == INSTANCE


def test_the_ticket_shows_in_no_printed_form() -> None:
    assert DOCUMENT.token.text() not in repr(ticket_file.parse(text()))
    assert TICKET.to_wire()["document"] not in repr(planned())
