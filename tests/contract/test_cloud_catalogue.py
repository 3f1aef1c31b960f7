"""The catalogue over either store, at a provider whose offer changes: nothing hurts but itself."""

import asyncio
import json
import pathlib
from typing import Any

import pytest

from platform_server.cloud import catalogue, connecting, consent, policy, using
from platform_server.store import contract
from provisioning import outcomes
from tests.support import cloud_desk
from tests.support.clouds import hetzner_bench
from tests.support.clouds import script as script_kit


@pytest.fixture
def store_kind() -> str:
    """One store: what differs between the two is shown in the tests of connections."""
    return "sqlite"


async def _desk(
    store: contract.Store,
    hetzner: hetzner_bench.HetznerBench,
    folder: pathlib.Path | None,
    **more: Any,
) -> cloud_desk.Desk:
    desk = cloud_desk.place(
        store,
        hetzner,
        address=hetzner.address,
        policy_file=None if folder is None else cloud_desk.write_policy(folder),
        **more,
    )
    await desk.connecting.save(desk.wish(token=hetzner_bench.TOKEN))
    return desk


async def _list(desk: cloud_desk.Desk, **wanted: Any) -> catalogue.Listing:
    return await desk.catalogue.list(
        catalogue.Wanted(**{"provider": "hetzner", **wanted}), actor=cloud_desk.ACTOR
    )


async def _judge(desk: cloud_desk.Desk, **wish: Any) -> catalogue.Judged:
    return await desk.catalogue.judge(
        catalogue.Wish(**{"provider": "hetzner", **wish}), infra="default", actor=cloud_desk.ACTOR
    )


def _reasons(listing: catalogue.Listing) -> dict[str, str | None]:
    return {
        row.offered.size.name: row.offered.reason
        for row in listing.rows
        if row.offered.region == "fsn1"
    }


async def test_an_order_gets_the_policys_first_and_the_providers_price(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _desk(store, hetzner, tmp_path)
    judged = await _judge(desk)
    assert (judged.region, judged.size, judged.tier, judged.image) == (
        "fsn1",
        "cx23",
        "starter",
        "debian-12",
    )
    assert judged.price is not None
    assert judged.price.as_of is None  # the provider's own word
    assert [(cap.named, cap.most_machines) for cap in judged.caps] == [("policy", 5)]
    assert judged.warnings == []


async def test_a_paid_provider_without_a_policy_is_unavailable_and_says_why(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = await _desk(store, hetzner, None)
    with pytest.raises(policy.Unavailable, match="policy_file"):
        await _judge(desk)
    listing = await _list(desk)
    assert listing.rows == []
    assert "no policy file" in listing.missing[0]


async def test_one_provider_without_anything_takes_nothing_from_the_others(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _desk(store, hetzner, tmp_path)
    listing = await _list(desk, provider=None)
    assert any(row.provider == "hetzner" and row.offered.is_available for row in listing.rows)
    assert len(listing.missing) > 3  # every paid provider without a section says so


async def test_b46_a_withdrawn_type_is_told_and_the_others_can_be_ordered_after_a_restart(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _desk(store, hetzner, tmp_path)
    assert _reasons(await _list(desk)) == {"cx23": None, "cx33": None}
    hetzner.fake.gone_types.add("cx23")
    desk.clock.advance(3600)
    again = cloud_desk.place(  # another engine on the same store
        store,
        hetzner,
        address=hetzner.address,
        policy_file=tmp_path / "policy.json",
        keyring=desk.keyring,
    )
    assert _reasons(await _list(again)) == {
        "cx23": "The provider has withdrawn the size cx23.",
        "cx33": None,
    }
    with pytest.raises(catalogue.NotOffered, match=r"withdrawn the size cx23.*To be had: growth"):
        await _judge(again, tier="starter")
    assert (await _judge(again, tier="growth")).size == "cx33"


async def test_the_offer_is_asked_for_once_an_hour_whoever_looks(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _desk(store, hetzner, tmp_path)
    await _list(desk)
    calls = len(hetzner.ledger.seen)
    for _ in range(30):
        desk.clock.advance(60)
        await _list(desk)
        await _judge(desk)
    assert len(hetzner.ledger.seen) == calls
    desk.clock.advance(3600)
    await _list(desk)
    assert len(hetzner.ledger.seen) > calls


async def test_the_last_offer_stands_while_the_provider_is_silent(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _desk(store, hetzner, tmp_path)
    await _list(desk)
    desk.clock.advance(7200)
    for call in ("GET /v1/server_types", "GET /v1/pricing"):
        hetzner.script.arm_always(
            script_kit.Armed(verb=script_kit.Verb.BEFORE_5XX, status=503), on=call
        )
    assert _reasons(await _list(desk)) == {"cx23": None, "cx33": None}


async def test_what_was_never_tried_and_what_is_not_allowed(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _desk(store, hetzner, tmp_path)
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"region": "nbg1"}, "does not allow the region nbg1"),
        ({"region": "nbg1", "untested": True}, "does not allow the region nbg1"),
        ({"size": "cx43"}, "--untested"),
        ({"tier": "giant"}, "There are: starter, growth"),
        ({"tier": "starter", "size": "cx23"}, "not both"),
        ({"image": "somebodys-image"}, "never tried"),
        ({"nested_virt": True}, "virtual machines of its own"),
    ]
    for wish, sentence in refusals:
        with pytest.raises(catalogue.NotOffered, match=sentence):
            await _judge(desk, **wish)
    judged = await _judge(desk, size="cx43", image="somebodys-image", untested=True)
    assert (judged.size, judged.image) == ("cx43", "somebodys-image")


async def test_a_snapshot_of_ours_is_an_image_by_its_name(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _desk(store, hetzner, tmp_path)
    connection = await desk.get()
    await store.transact(
        lambda tx: tx.execute(
            "INSERT INTO cloud_children(child_id, connection_id, kind, provider_ref, name, "
            "operation_id, keep, written_at, sent_at) VALUES ('s1', ?, 'snapshot', '4711', "
            "'golden', 'o', 1, 0, 0)",
            connection.connection_id,
        )
    )
    assert (await _judge(desk, image="golden")).image == "4711"


async def test_the_connection_is_named_where_there_is_more_than_one(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _desk(store, hetzner, tmp_path)
    await desk.connecting.save(desk.wish(token=hetzner_bench.TOKEN, name="second"))
    with pytest.raises(catalogue.NoConnection, match="main, second"):
        await _judge(desk)
    assert (await _judge(desk, connection="second")).connection.name == "second"
    with pytest.raises(catalogue.NoConnection, match="save NAME"):
        await desk.catalogue.judge(
            catalogue.Wish(provider="hetzner"), infra="elsewhere", actor=cloud_desk.ACTOR
        )


async def test_nothing_is_ordered_through_a_paused_connection(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _desk(store, hetzner, tmp_path)
    hetzner.script.is_token_revoked = True
    with pytest.raises(outcomes.Fault):
        async with desk.clouds.driver(
            "main", purpose="look", actor=cloud_desk.ACTOR, changes=False
        ) as driver:
            await driver.offer()
    with pytest.raises(using.Paused):
        await _judge(desk)
    reasons = _reasons(await _list(desk))
    assert all(reason is not None and "is paused" in reason for reason in reasons.values())


async def test_the_narrower_of_policy_and_consent_holds_and_a_consent_ends_by_itself(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _desk(store, hetzner, tmp_path)
    rules = policy.Source(tmp_path / "policy.json").find("hetzner")

    async def give(machines: int) -> consent.Consent:
        connection = await desk.get()
        wish = consent.Wish(
            most_machines=machines, most_hourly_micros=500_000, currency="EUR", days=30
        )
        return await store.transact(
            lambda tx: consent.give(
                tx,
                connection=connection,
                wish=wish,
                rules=rules,
                actor=cloud_desk.ACTOR,
                environment=cloud_desk.ENVIRONMENT,
                now=desk.clock.now(),
            )
        )

    with pytest.raises(consent.NotWithinPolicy, match="5 machines"):
        await give(6)
    await give(2)
    caps = [(cap.named, cap.most_machines) for cap in (await _judge(desk)).caps]
    assert caps == [("policy", 5), ("consent", 2)]
    desk.clock.advance(30 * 86_400)
    assert [cap.named for cap in (await _judge(desk)).caps] == ["policy"]
    assert consent.find_valid(await desk.get(), now=desk.clock.now()) is None
    found = await desk.get()
    assert await store.transact(
        lambda tx: consent.withdraw(
            tx,
            connection=found,
            actor=cloud_desk.ACTOR,
            environment=cloud_desk.ENVIRONMENT,
            now=desk.clock.now(),
        )
    )
    assert (await desk.get()).consent is None
    assert [entry["actor"] for entry in await desk.actions("cloud.consents.given")] == [
        cloud_desk.ACTOR
    ]


async def test_this_host_needs_neither_a_policy_nor_a_saved_connection(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = cloud_desk.place(store, hetzner, address=hetzner.address)
    for _ in range(2):
        made = await store.transact(
            lambda tx: connecting.ensure_local(tx, actor=cloud_desk.ACTOR, now=desk.clock.now())
        )
    assert (made.name, made.provider, made.has_secret) == ("local", "local-nspawn", False)
    rows = await store.read(
        lambda tx: tx.fetch_all("SELECT connection_id FROM cloud_connections LIMIT 10")
    )
    assert len(rows) == 1


async def test_a_connection_named_local_is_in_nobodys_way(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench
) -> None:
    desk = cloud_desk.place(store, hetzner, address=hetzner.address)
    for name in ("local", "local-2"):
        await desk.connecting.save(desk.wish(token=hetzner_bench.TOKEN, name=name))
    for _ in range(2):
        made = await store.transact(
            lambda tx: connecting.ensure_local(tx, actor=cloud_desk.ACTOR, now=desk.clock.now())
        )
    assert (made.name, made.provider) == ("local-3", "local-nspawn")
    assert (await desk.get("local")).provider == "hetzner"


async def test_an_edit_of_the_policy_counts_at_once(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _desk(store, hetzner, tmp_path)
    await _judge(desk)
    narrowed = {**cloud_desk.POLICY, "regions": ["hel1"]}
    cloud_desk.write_policy(tmp_path, hetzner=narrowed)
    assert (await _judge(desk)).region == "hel1"
    (tmp_path / "policy.json").write_text(json.dumps({"version": 1}))
    with pytest.raises(policy.Unavailable):
        await _judge(desk)


async def test_a_provider_that_does_not_answer_is_asked_once_a_minute(
    store: contract.Store, hetzner: hetzner_bench.HetznerBench, tmp_path: pathlib.Path
) -> None:
    desk = await _desk(store, hetzner, tmp_path)
    hetzner.script.arm_always(
        script_kit.Armed(verb=script_kit.Verb.BEFORE_5XX, status=503), on="GET /v1/server_types"
    )
    before = hetzner.ledger.count("GET /v1/server_types")

    async def asked() -> int:
        await asyncio.gather(*(_list(desk) for _ in range(5)))  # and five at one moment
        return hetzner.ledger.count("GET /v1/server_types") - before

    first = await asked()
    desk.clock.advance(59)
    assert await asked() == first
    desk.clock.advance(1)
    second = await asked()
    assert second == 2 * first > 0
    hetzner.script.disarm(on="GET /v1/server_types")
    desk.clock.advance(60)
    assert await asked() > second
    assert (await desk.get()).offer_at is not None
