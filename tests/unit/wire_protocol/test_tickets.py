"""The ticket's form: read as written, signed over exact bytes, refused when edited."""

import dataclasses
import datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from wire_protocol import enrollment_token, ids, pins, signing, statements, strict_json, tickets

NOW = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)
PIN = pins.Pin("sha256:" + "ab" * 32)
KEY = ed25519.Ed25519PrivateKey.generate()
DAY = datetime.timedelta(days=1)
BUNDLE = tickets.Bundle(
    url="https://platform.test:8446",
    pins=(PIN,),
    archives={"x86_64": "cd" * 32},
    installers={"x86_64": "ef" * 32},
)


def _document(*, bundle: tickets.Bundle | None = BUNDLE) -> tickets.Document:
    return tickets.Document(
        platform_id=ids.PlatformId("p-abc"),
        installation="p-abc",
        infra="default",
        node_id=ids.NodeId("web-1"),
        operation_id="0123456789abcdef",
        attempt=2,
        url="https://platform.test:8444",
        pins=(PIN,),
        trust_key_ids=(ids.KeyId("ab" * 8),),
        issued_at=NOW,
        expires_at=NOW + DAY,
        bundle=bundle,
        token=enrollment_token.new(),
    )


def _trust_key(*, not_after: datetime.datetime = NOW + DAY) -> statements.TrustKey:
    public = signing.public_bytes(KEY.public_key())
    return statements.TrustKey(
        key_id=signing.key_id_of(public),
        public_key=public,
        not_before=NOW - DAY,
        not_after=not_after,
        certificate_pem="",
    )


def _signed(document: tickets.Document, *, context: str = tickets.CONTEXT) -> tickets.Ticket:
    content = document.to_bytes()
    signature = statements.Signature(
        key_id=_trust_key().key_id, signature=signing.sign(KEY, content, context=context)
    )
    return tickets.sealed_by(document, signature, content=content)


@pytest.mark.parametrize("bundle", [BUNDLE, None])
def test_a_document_is_read_as_it_was_written(bundle: tickets.Bundle | None) -> None:
    document = _document(bundle=bundle)
    assert tickets.read_document(document.to_bytes()) == document


def test_a_ticket_file_is_read_as_it_was_written_and_its_document_believed_by_its_signature() -> (
    None
):
    document = _document()
    ticket = tickets.parse(_signed(document).to_bytes())
    assert tickets.verify(ticket, trust_keys=[_trust_key()], now=NOW) == document


def test_an_edited_document_is_refused() -> None:
    ticket = _signed(_document())
    edited = dataclasses.replace(
        ticket, content=ticket.content.replace(b"platform.test", b"elsewhe.re.test"[:13])
    )
    with pytest.raises(tickets.Refused, match="edited"):
        tickets.verify(edited, trust_keys=[_trust_key()], now=NOW)


def test_a_signature_made_for_something_else_is_none() -> None:
    ticket = _signed(_document(), context="enlist-order-v1")
    with pytest.raises(tickets.Refused):
        tickets.verify(ticket, trust_keys=[_trust_key()], now=NOW)


def test_an_unknown_or_ended_key_signs_nothing() -> None:
    ticket = _signed(_document())
    for keys in ([], [_trust_key(not_after=NOW - datetime.timedelta(seconds=1))]):
        with pytest.raises(tickets.Refused, match="valid now"):
            tickets.verify(ticket, trust_keys=keys, now=NOW)


def test_a_newer_form_says_to_update() -> None:
    content = _document().to_bytes().replace(b'"v":1', b'"v":2')
    with pytest.raises(strict_json.Malformed, match="update Enlist"):
        tickets.read_document(content)


@pytest.mark.parametrize(
    ("document", "signature", "key_id"),
    [("!", "", "ab" * 8), ("e30=", "AA" * 100, "ab" * 8), ("e30=", "", "short")],
)
def test_what_is_out_of_shape_is_malformed(document: str, signature: str, key_id: str) -> None:
    with pytest.raises(strict_json.Malformed):
        tickets.of_wire(document, signature, key_id)


def test_the_token_stands_in_no_picture_of_it() -> None:
    document = _document()
    assert document.token.text() not in repr(document)
    assert document.token.text() not in repr(_signed(document))
