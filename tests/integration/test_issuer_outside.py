"""The issuer's documents as a cloud fetches them: over TLS, from a host that serves files."""

import datetime
import json
import pathlib
import ssl
from collections.abc import AsyncIterator
from typing import Final

import pytest
from aiohttp import web

from platform_server.cloud.issuer import documents, keys, outside
from tests.support import certificates

NOW: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def a_key() -> keys.IssuerKey:
    jwk = keys.jwk_of(keys.make_private().public_key())
    until = NOW + datetime.timedelta(days=180)
    return keys.IssuerKey(
        key_id=jwk["kid"],
        jwk=jwk,
        created_at=NOW,
        signs_from=NOW,
        signs_until=until,
        shown_until=until,
    )


class Host:
    """A host that serves a folder of files, and what its certificate is believed by."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.url = ""
        self.context = ssl.create_default_context()


@pytest.fixture
async def host(tmp_path: pathlib.Path) -> AsyncIterator[Host]:
    found = Host(tmp_path / "public")
    found.folder.mkdir()
    issued = certificates.issue()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chain = tmp_path / "chain.pem"
    chain.write_text(issued.pem + issued.key_pem)
    serving.load_cert_chain(chain)
    found.context.load_verify_locations(cadata=issued.pem)
    app = web.Application()

    async def answer(request: web.Request) -> web.StreamResponse:
        path = found.folder / request.match_info["path"]
        if path.name == "moved":
            raise web.HTTPFound("/jwks.json")
        if not path.is_file():
            raise web.HTTPNotFound
        return web.Response(body=path.read_bytes())

    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving)
    await site.start()
    [address] = runner.addresses
    found.url = f"https://127.0.0.1:{address[1]}"
    try:
        yield found
    finally:
        await runner.cleanup()


async def test_what_was_exported_and_put_on_a_host_is_in_order(host: Host) -> None:
    key = a_key()
    documents.export(documents.of(host.url, shown=[key]), folder=host.folder)
    assert await outside.find_problems(host.url, shown=[key], context=host.context) == []


async def test_a_key_that_was_not_published_yet_is_named(host: Host) -> None:
    old, new = a_key(), a_key()
    documents.export(documents.of(host.url, shown=[old]), folder=host.folder)
    [problem] = await outside.find_problems(host.url, shown=[old, new], context=host.context)
    assert new.key_id in problem
    assert "enlist cloud issuer export DIR" in problem


async def test_documents_of_another_issuer_are_said_to_be(host: Host) -> None:
    key = a_key()
    documents.export(documents.of("https://other.example", shown=[key]), folder=host.folder)
    problems = await outside.find_problems(host.url, shown=[key], context=host.context)
    assert any("issuer" in one and "other.example" in one for one in problems)


async def test_nothing_there_and_a_certificate_nobody_believes_are_told_apart(host: Host) -> None:
    [missing] = await outside.find_problems(host.url, shown=[a_key()], context=host.context)
    assert "answers 404" in missing
    [unbelieved] = await outside.find_problems(host.url, shown=[a_key()])
    assert "cannot be fetched" in unbelieved


async def test_a_document_without_end_is_not_read_to_its_end(host: Host) -> None:
    key = a_key()
    documents.export(documents.of(host.url, shown=[key]), folder=host.folder)
    (host.folder / documents.JWKS).write_text(json.dumps({"keys": ["x" * 1_000_000]}))
    [problem] = await outside.find_problems(host.url, shown=[key], context=host.context)
    assert "larger than" in problem
