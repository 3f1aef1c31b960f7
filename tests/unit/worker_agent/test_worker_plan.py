"""What a join comes to: the wish read, and the decision from it and what is stored (tables)."""

import dataclasses
import datetime
from typing import Any

import pytest

from runtime_kit import secret as secret_kit
from tests.support import certificates, held_sets
from wire_protocol import enrollment_token, ids, join_token, pins
from worker_agent.enrollment import plan, platform_url, stored, wish
from worker_agent.settings import agent_file, failures, join_file

NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
PIN = pins.Pin("sha256:" + "ab" * 32)
OTHER_PIN = pins.Pin("sha256:" + "ef" * 32)
TRUST_KEY = held_sets.Key()
HELD = held_sets.held(TRUST_KEY)
URL = "https://p.example:8444"
TOKEN = enrollment_token.new()
JOIN_TOKEN = join_token.JoinToken(
    url=URL,
    node_id=ids.NodeId("web-1"),
    token=TOKEN,
    pins=(PIN,),
    trust_key_ids=(TRUST_KEY.public.key_id,),
    expires_at=NOW,
)
AGENT = agent_file.AgentFile(
    node_id=ids.NodeId("web-1"),
    generation=1,
    connectivity=agent_file.Connectivity.LISTEN,
    addresses=("192.0.2.7",),
    port=8443,
    reported_labels={"rack": "b4"},
    gateway_url=None,
    gateway_pins=(),
    joined_at=NOW,
)
JOIN = join_file.JoinFile(
    platform_url=URL,
    platform_id=ids.PlatformId("plt_1"),
    node_id=ids.NodeId("web-1"),
    mode=join_file.Mode.PINS,
    given_pins=(PIN,),
    pins=(PIN,),
    ca_pem=None,
    enrollment_id=TOKEN.enrollment_id,
    joined_at=NOW,
)
JOINED = stored.Stored(agent=AGENT, join=JOIN, held=HELD, has_identity=True)
NOTHING = stored.Stored()


def given(*, token: join_token.JoinToken | None = None, **more: Any) -> wish.Given:
    text = None if token is None else secret_kit.Secret(join_token.encode(token))
    return wish.Given(join_token=text, **more)


def decided(asked: wish.Given, *, on: stored.Stored) -> plan.Join | plan.AlreadyJoined:
    return plan.decide(wish.parse(asked), stored=on)


def test_a_join_token_and_an_address_are_all_that_a_first_join_needs() -> None:
    found = decided(given(token=JOIN_TOKEN, addresses=("192.0.2.7",)), on=NOTHING)
    assert isinstance(found, plan.Join)
    assert (found.url, found.node_id, found.token) == (URL, "web-1", TOKEN)
    assert (found.mode, found.pins) == (join_file.Mode.PINS, (PIN,))
    assert found.agent_origin == "https://192.0.2.7:8443"
    assert found.trust_key_ids == (TRUST_KEY.public.key_id,)


def test_an_ipv6_address_is_dialled_in_brackets() -> None:
    found = decided(given(token=JOIN_TOKEN, addresses=("[2001:db8::7]",), port=9443), on=NOTHING)
    assert isinstance(found, plan.Join)
    assert found.agent_origin == "https://[2001:db8::7]:9443"


def test_the_first_address_is_the_one_that_is_dialled_and_all_are_named() -> None:
    asked = given(token=JOIN_TOKEN, addresses=("w1.example.", "192.0.2.7", "w1.example"))
    found = decided(asked, on=NOTHING)
    assert isinstance(found, plan.Join)
    assert found.addresses == ("w1.example", "192.0.2.7")
    assert found.agent_origin == "https://w1.example:8443"


def test_without_an_address_the_machine_dials_out_and_sends_no_url() -> None:
    found = decided(given(token=JOIN_TOKEN), on=NOTHING)
    assert isinstance(found, plan.Join)
    assert found.connectivity is agent_file.Connectivity.DIAL_OUT
    assert found.agent_origin is None


def test_fingerprints_given_as_flags_take_the_place_of_the_join_tokens() -> None:
    found = decided(given(token=JOIN_TOKEN, fingerprints=(OTHER_PIN,)), on=NOTHING)
    assert isinstance(found, plan.Join)
    assert found.pins == (OTHER_PIN,)


def test_a_ca_file_is_added_to_the_join_tokens_pins_and_both_must_hold() -> None:
    authority = certificates.issue(authority=True, names=())
    found = decided(given(token=JOIN_TOKEN, ca_pem=authority.pem.encode()), on=NOTHING)
    assert isinstance(found, plan.Join)
    assert found.mode is join_file.Mode.PINS_AND_CA_FILE


ALREADY: dict[str, wish.Given] = {
    "nothing given": given(),
    "the same token": given(token=JOIN_TOKEN),
    "the same token and the same flags": given(
        token=JOIN_TOKEN, addresses=("192.0.2.7",), port=8443, labels=("rack=b4",)
    ),
    "the same node in capitals": given(node_id="WEB-1."),
    "the same Platform with a slash": given(platform_url=f"{URL}/"),
    "the address that a statement has added": given(platform_url="https://stated.example:8444"),
    "the pin that a statement has added": given(fingerprints=(held_sets.PIN,)),
}


@pytest.mark.parametrize("case", ALREADY)
def test_a_joined_machine_has_nothing_to_do_with(case: str) -> None:
    assert isinstance(decided(ALREADY[case], on=JOINED), plan.AlreadyJoined)


CA = certificates.issue(authority=True, names=()).pem.encode()
FOREIGN = dataclasses.replace(
    JOIN_TOKEN, url="https://q.example:8444", trust_key_ids=(held_sets.Key().public.key_id,)
)
FRESH = enrollment_token.new()
CONFLICTS: dict[str, tuple[wish.Given, str]] = {
    "another node": (given(node_id="web-2"), "it is node web-1, not web-2"),
    "another Platform": (given(platform_url="https://q.example"), "not https://q.example"),
    "another Platform's join token": (given(token=FOREIGN), "not https://q.example:8444"),
    "a join token for elsewhere that names a trust key held here, whose id is public": (
        given(token=dataclasses.replace(JOIN_TOKEN, url="https://q.example:8444", token=FRESH)),
        "its Platform is https://p.example:8444, not https://q.example:8444",
    ),
    "a join token with other pins that names a trust key held here": (
        given(token=dataclasses.replace(JOIN_TOKEN, pins=(OTHER_PIN,), token=FRESH)),
        OTHER_PIN,
    ),
    "another fingerprint": (given(fingerprints=(OTHER_PIN,)), OTHER_PIN),
    "another address": (given(addresses=("192.0.2.8",)), "192.0.2.8"),
    "another port": (given(port=9443), "--port is 9443, stored is 8443"),
    "other labels": (given(labels=("rack=b5",)), "--label"),
    "a CA file that was not there": (given(ca_pem=CA), "--platform-ca-file"),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_a_joined_machine_names_the_difference_for(case: str) -> None:
    asked, words = CONFLICTS[case]
    with pytest.raises(failures.Conflict) as raised:
        decided(asked, on=JOINED)
    assert words in str(raised.value)
    assert raised.value.exit_code == 4


def test_every_difference_is_named_at_once() -> None:
    with pytest.raises(failures.Conflict, match=r"web-2.*--port"):
        decided(given(node_id="web-2", port=9443), on=JOINED)


def test_a_new_token_on_a_joined_machine_enrolls_again_with_the_stored_values() -> None:
    fresh = dataclasses.replace(JOIN_TOKEN, token=FRESH, pins=(OTHER_PIN, held_sets.PIN))
    found = decided(given(token=fresh), on=JOINED)
    assert isinstance(found, plan.Join)
    assert (found.addresses, found.labels) == (("192.0.2.7",), {"rack": "b4"})
    assert found.pins == (OTHER_PIN, held_sets.PIN), "the Platform's TLS key may be changing"
    assert found.held is HELD


DIALS_OUT = dataclasses.replace(
    AGENT, connectivity=agent_file.Connectivity.DIAL_OUT, addresses=(), reported_labels={}
)
NEW = dataclasses.replace(JOIN_TOKEN, token=FRESH)


@pytest.mark.parametrize("stands", [AGENT, DIALS_OUT], ids=["listens", "dials out"])
def test_a_new_token_may_say_anew_how_the_machine_is_reached(stands: agent_file.AgentFile) -> None:
    asked: dict[str, Any] = {"addresses": ("192.0.2.8",), "port": 9443, "labels": ("rack=b5",)}
    on = dataclasses.replace(JOINED, agent=stands)
    with pytest.raises(failures.Conflict) as raised:
        decided(given(token=JOIN_TOKEN, **asked), on=on)
    assert "enlist nodes enroll-token web-1 --replace" in str(raised.value)
    assert str(raised.value).endswith("enlist worker join -")
    found = decided(given(token=NEW, **asked), on=on)
    assert isinstance(found, plan.Join)
    assert found.connectivity is agent_file.Connectivity.LISTEN
    assert (found.agent_origin, found.labels) == ("https://192.0.2.8:9443", {"rack": "b5"})


def test_a_new_token_alone_does_not_make_a_machine_listen() -> None:
    on = dataclasses.replace(JOINED, agent=DIALS_OUT)
    found = decided(given(token=NEW), on=on)
    assert isinstance(found, plan.Join)
    assert (found.connectivity, found.agent_origin) == (agent_file.Connectivity.DIAL_OUT, None)
    with pytest.raises(failures.Misuse, match="--port belongs to"):
        decided(given(token=NEW, port=9443), on=on)


def test_where_the_pins_alone_differ_the_trust_set_is_to_be_fetched_first() -> None:
    fresh = dataclasses.replace(JOIN_TOKEN, token=FRESH, pins=(OTHER_PIN,))
    with pytest.raises(failures.Conflict) as raised:
        decided(given(token=fresh), on=JOINED)
    assert str(raised.value).endswith("enlist worker refresh-trust")
    elsewhere = dataclasses.replace(fresh, url="https://q.example:8444")
    with pytest.raises(failures.Conflict) as raised:
        decided(given(token=elsewhere), on=JOINED)
    assert "refresh-trust" not in str(raised.value)


@pytest.mark.parametrize("mode", [join_file.Mode.CA_FILE, join_file.Mode.PUBLIC_ROOTS])
def test_a_new_token_of_the_same_platform_does_not_change_how_it_is_known(
    mode: join_file.Mode,
) -> None:
    without_pins = dataclasses.replace(JOIN, mode=mode, pins=(), given_pins=())
    fresh = dataclasses.replace(JOIN_TOKEN, token=FRESH, pins=(held_sets.PIN,))
    found = decided(given(token=fresh), on=dataclasses.replace(JOINED, join=without_pins))
    assert isinstance(found, plan.Join)
    assert (found.mode, found.pins) == (mode, ())


@pytest.mark.parametrize("missing", ["join", "held", "has_identity"])
def test_a_lost_file_is_repaired_by_the_same_token(missing: str) -> None:
    lost: dict[str, Any] = {missing: False if missing == "has_identity" else None}
    found = decided(
        given(token=JOIN_TOKEN, addresses=("192.0.2.7",)), on=dataclasses.replace(JOINED, **lost)
    )
    assert isinstance(found, plan.Join)
    assert found.agent_origin == "https://192.0.2.7:8443"


def test_a_lost_file_without_a_token_asks_for_one() -> None:
    with pytest.raises(failures.NeedsOperator, match="enlist nodes enroll-token web-1 --replace"):
        decided(given(), on=dataclasses.replace(JOINED, held=None))


DAMAGED = dataclasses.replace(JOINED, agent=None, agent_is_damaged=True)
BOUND: dict[str, wish.Given] = {
    "another Platform": given(token=FOREIGN, addresses=("192.0.2.7",)),
    "another node": given(token=dataclasses.replace(JOIN_TOKEN, node_id=ids.NodeId("web-2"))),
    "other pins": given(token=dataclasses.replace(JOIN_TOKEN, pins=(OTHER_PIN,))),
}


@pytest.mark.parametrize("case", BOUND)
def test_a_damaged_agent_file_does_not_unbind_the_machine_for(case: str) -> None:
    with pytest.raises(failures.Conflict):
        decided(BOUND[case], on=DAMAGED)


def test_a_damaged_agent_file_is_repaired_by_the_same_token_and_the_held_keys_still_judge() -> None:
    found = decided(given(token=JOIN_TOKEN, addresses=("192.0.2.7",)), on=DAMAGED)
    assert isinstance(found, plan.Join)
    assert (found.agent_origin, found.held) == ("https://192.0.2.7:8443", HELD)


def test_a_repair_keeps_the_stored_way_in_where_no_flag_says_it_again() -> None:
    found = decided(given(token=JOIN_TOKEN), on=dataclasses.replace(JOINED, join=None))
    assert isinstance(found, plan.Join)
    assert (found.agent_origin, found.labels) == ("https://192.0.2.7:8443", {"rack": "b4"})


def test_an_unfinished_join_binds_nobody() -> None:
    unfinished = dataclasses.replace(JOINED, agent=None)
    found = decided(given(token=FOREIGN), on=unfinished)
    assert isinstance(found, plan.Join)
    assert (found.url, found.held) == ("https://q.example:8444", None)


MISUSES: dict[str, tuple[wish.Given, str]] = {
    "nothing at all": (given(), "--platform-url and --node-id and --enrollment-token-file"),
    "no node": (given(platform_url=URL), "--node-id"),
    "a port without an address": (given(token=JOIN_TOKEN, port=8443), "--port belongs to"),
    "two addresses of a Platform": (given(token=JOIN_TOKEN, platform_url="https://q"), "https://q"),
    "two nodes": (given(token=JOIN_TOKEN, node_id="web-2"), "web-2"),
    "two tokens": (
        given(
            token=JOIN_TOKEN,
            enrollment_token=secret_kit.Secret(enrollment_token.new().text()),
        ),
        "differs",
    ),
    "an unspecified address": (given(token=JOIN_TOKEN, addresses=("0.0.0.0",)), "cannot be"),
    "a multicast address": (given(token=JOIN_TOKEN, addresses=("ff02::1",)), "cannot be dialled"),
    "a zone": (given(token=JOIN_TOKEN, addresses=("fe80::1%eth0",)), "zone"),
    "seventeen addresses": (
        given(token=JOIN_TOKEN, addresses=tuple(f"192.0.2.{at}" for at in range(17))),
        "at most 16",
    ),
    "seventeen fingerprints": (
        given(token=JOIN_TOKEN, fingerprints=(PIN,) * 17),
        "at most 16",
    ),
    "port zero": (given(token=JOIN_TOKEN, addresses=("192.0.2.7",), port=0), "--port"),
    "port 70000": (given(token=JOIN_TOKEN, addresses=("192.0.2.7",), port=70_000), "65535"),
}


@pytest.mark.parametrize("case", MISUSES)
def test_it_is_misuse_to_give(case: str) -> None:
    asked, words = MISUSES[case]
    with pytest.raises(failures.Misuse) as raised:
        decided(asked, on=NOTHING)
    assert words in str(raised.value)
    assert TOKEN.secret_hex not in str(raised.value)


def test_no_secret_is_in_any_printed_form() -> None:
    asked = given(token=JOIN_TOKEN)
    found = decided(asked, on=NOTHING)
    for printed in (repr(asked), repr(wish.parse(asked)), repr(found)):
        assert TOKEN.secret_hex not in printed
        assert "enj_" not in printed


URLS = {
    "https://p.example:8444": "https://p.example:8444",
    "https://P.Example.:8444/": "https://p.example:8444",
    "https://p.example": "https://p.example",
    "https://p.example:443": "https://p.example",
    "https://[2001:db8:0::1]:8444": "https://[2001:db8::1]:8444",
    " https://192.0.2.1:8444\n": "https://192.0.2.1:8444",
}


@pytest.mark.parametrize("text", URLS)
def test_an_address_of_a_platform_has_one_form(text: str) -> None:
    assert platform_url.parse(text) == URLS[text]


@pytest.mark.parametrize(
    "text",
    [
        "http://p.example",
        "p.example:8444",
        "https://",
        "https://p.example/api",
        "https://p.example?x",
        "https://amy:pw@p.example",
        "https://p.example:0",
        "https://p.example:99999",
        "https://p..example",
        f"https://{'p' * 64}.example",
        "https://[::1",
        "ftp://p.example",
        "https://p exa.mple",
        "https://pläne.example",
        "https://" + "p" * 3000,
    ],
)
def test_what_is_no_https_origin_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"\.$|https://|long|http is refused"):
        platform_url.parse(text)
