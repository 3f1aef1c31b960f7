"""The issuer over a real store of either kind: keys that rotate, documents, assertions."""

import asyncio
import datetime
import json
import pathlib

import jwt
import pytest

from platform_server.cloud.issuer import documents, keys, rotation, signers
from platform_server.sealing import envelope, master_key
from platform_server.store import contract
from runtime_kit import clock as clock_kit

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
URL = "https://issuer.example/enlist"
DAY = 86_400


class Issuer:
    """One issuer with a clock that a test moves."""

    def __init__(self, store: contract.Store, ring: envelope.Keyring) -> None:
        self.store = store
        self.ring = ring
        self.clock = clock_kit.ManualClock(NOW)

    async def advance(self, *, days: float = 0) -> rotation.Plan:
        self.clock.advance(days * DAY)
        return await rotation.advance(
            self.store, keyring=self.ring, environment="test", clock=self.clock
        )

    async def shown(self) -> list[keys.IssuerKey]:
        return list(await self.store.read(lambda tx: keys.list_shown(tx, now=self.clock.now())))

    async def signer(self) -> signers.Signer:
        return await self.store.read(
            lambda tx: signers.load(tx, keyring=self.ring, url=URL, now=self.clock.now())
        )

    async def published(self) -> dict[str, bytes]:
        return dict(documents.of(URL, shown=await self.shown()))


@pytest.fixture
async def issuer(store: contract.Store, tmp_path: pathlib.Path) -> Issuer:
    ring = await master_key.open_keyring(store, path=tmp_path / "master.key", now=NOW)
    return Issuer(store, ring)


def believed(published: dict[str, bytes], token: str, *, audience: str) -> dict[str, object]:
    """What a cloud makes of an assertion, from the two documents alone."""
    told = json.loads(published[documents.DISCOVERY])
    assert told["jwks_uri"] == f"{URL}/{documents.JWKS}"
    held = jwt.PyJWKSet.from_json(published[documents.JWKS].decode())
    key = held[jwt.get_unverified_header(token)["kid"]]
    return dict(
        jwt.decode(
            token,
            key.key,
            algorithms=told["id_token_signing_alg_values_supported"],
            audience=audience,
            issuer=told["issuer"],
            options={
                "require": ["exp", "iat", "nbf", "sub", "jti"],
                "verify_exp": False,  # judged by the test's own clock
                "verify_iat": False,
                "verify_nbf": False,
            },
        )
    )


async def test_an_assertion_is_believed_by_the_published_documents_alone(issuer: Issuer) -> None:
    await issuer.advance()
    signer = await issuer.signer()
    now = issuer.clock.now()
    subject = signers.subject_of("c-1")
    token = signer.assertion(subject=subject, audience="sts.amazonaws.com", now=now)
    claims = believed(await issuer.published(), token, audience="sts.amazonaws.com")
    assert claims["sub"] == "connection:c-1"
    assert claims["exp"] == int((now + signers.LIFETIME).timestamp())
    with pytest.raises(jwt.InvalidAudienceError):
        believed(await issuer.published(), token, audience="api://AzureADTokenExchange")


async def test_every_assertion_has_an_id_of_its_own(issuer: Issuer) -> None:
    await issuer.advance()
    signer = await issuer.signer()
    made = [
        jwt.decode(
            signer.assertion(subject="s", audience="a", now=NOW),
            options={"verify_signature": False},
        )["jti"]
        for _ in range(2)
    ]
    assert made[0] != made[1]


async def test_without_a_key_nothing_is_signed(issuer: Issuer) -> None:
    with pytest.raises(signers.NoKey):
        await issuer.signer()


async def test_many_engines_make_one_key(issuer: Issuer) -> None:
    await asyncio.gather(*(issuer.advance() for _ in range(3)))
    assert len(await issuer.shown()) == 1


async def test_keys_overlap_so_that_no_assertion_is_ever_signed_by_a_key_not_shown_before(
    issuer: Issuer,
) -> None:
    await issuer.advance()
    seen_since: dict[str, datetime.datetime] = {}
    signing: list[str] = []
    for day in range(0, 800, 5):
        await issuer.advance(days=5 if day else 0)
        for key in await issuer.shown():
            seen_since.setdefault(key.key_id, issuer.clock.now())
        current = (await issuer.signer()).key_id
        if current not in signing:
            signing.append(current)
            shown_for = issuer.clock.now() - seen_since[current]
            assert len(signing) == 1 or shown_for >= datetime.timedelta(days=25)
    assert len(signing) == 5


async def test_what_the_former_key_signed_is_believed_until_it_has_ended(issuer: Issuer) -> None:
    await issuer.advance()
    await issuer.advance(days=179.999)
    former = await issuer.signer()
    token = former.assertion(subject="s", audience="a", now=issuer.clock.now())
    await issuer.advance(days=0.002)
    assert (await issuer.signer()).key_id != former.key_id
    assert believed(await issuer.published(), token, audience="a")["sub"] == "s"
    await issuer.advance(days=3)
    assert former.key_id not in {key.key_id for key in await issuer.shown()}


async def test_a_key_feared_stolen_is_shown_no_more_at_once(issuer: Issuer) -> None:
    await issuer.advance()
    stolen = (await issuer.signer()).key_id
    private = keys.make_private()
    await issuer.store.transact(
        lambda tx: rotation.rotate_now(
            tx,
            private=private,
            keyring=issuer.ring,
            signs_after=rotation.AT_ONCE,
            now=issuer.clock.now(),
        )
    )
    assert (await issuer.signer()).key_id != stolen
    assert stolen.encode() not in (await issuer.published())[documents.JWKS]


async def test_a_rotation_by_hand_leaves_time_to_publish(issuer: Issuer) -> None:
    await issuer.advance()
    before = (await issuer.signer()).key_id
    private = keys.make_private()
    made = await issuer.store.transact(
        lambda tx: rotation.rotate_now(
            tx, private=private, keyring=issuer.ring, now=issuer.clock.now()
        )
    )
    assert (await issuer.signer()).key_id == before
    assert made.key_id.encode() in (await issuer.published())[documents.JWKS]
    await issuer.advance(days=30)
    assert (await issuer.signer()).key_id == made.key_id


async def test_private_halves_are_sealed_and_documents_hold_none(
    issuer: Issuer, tmp_path: pathlib.Path
) -> None:
    await issuer.advance()
    row = await issuer.store.read(lambda tx: tx.fetch_one("SELECT * FROM issuer_keys"))
    assert row is not None
    numbers = (await issuer.signer()).private.private_numbers()
    secret = numbers.p.to_bytes(128, "big")
    assert secret not in bytes(row["sealed"])
    for content in (await issuer.published()).values():
        assert not {"d", "p", "q", "dp", "dq", "qi"} & set(json.loads(content).get("keys", [{}])[0])
    written = documents.export(await issuer.published(), folder=tmp_path / "public")
    assert [path.stat().st_mode & 0o777 for path in written] == [0o644, 0o644]


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://issuer.example", id="not https"),
        pytest.param("https://issuer.example/", id="a slash at the end"),
        pytest.param("https://issuer.example/a?b=c", id="a query"),
        pytest.param("https://user:word@issuer.example", id="a password in it"),
        pytest.param(f"https://issuer.example/{'a' * 255}", id="too long"),
    ],
)
def test_an_address_that_clouds_would_refuse_is_refused_here(url: str) -> None:
    with pytest.raises(documents.Refused):
        documents.check_url(url)
