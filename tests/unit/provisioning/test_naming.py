"""Names, tags and tokens: the same for the same attempt, apart for another, and never too long."""

import dataclasses
import re

import hypothesis
import pytest
from hypothesis import strategies

from provisioning import contract, naming

OWNER = contract.Owner(
    installation="in-5f0c2a9d4b7e", infra="default", operation="op-1", node="demo", attempt=1
)
RFC_1035 = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
OTHERS = [
    pytest.param({"attempt": 2}, id="another attempt"),
    pytest.param({"operation": "op-2"}, id="another operation"),
    pytest.param({"installation": "in-0000000000ff"}, id="another installation"),
]


def test_the_same_attempt_has_the_same_name_and_token() -> None:
    again = dataclasses.replace(OWNER)
    assert naming.name_of(again) == naming.name_of(OWNER)
    assert naming.client_token(again, zone="a") == naming.client_token(OWNER, zone="a")


@pytest.mark.parametrize("changed", OTHERS)
def test_whatever_else_it_is_has_another_name_and_token(changed: dict[str, str]) -> None:
    other = dataclasses.replace(OWNER, **changed)  # type: ignore[arg-type]
    assert naming.name_of(other) != naming.name_of(OWNER)
    assert naming.client_token(other, zone="a") != naming.client_token(OWNER, zone="a")


def test_another_zone_has_another_token_for_tokens_are_kept_by_zone() -> None:
    assert naming.client_token(OWNER, zone="a") != naming.client_token(OWNER, zone="b")


@pytest.mark.parametrize("changed", OTHERS)
@pytest.mark.parametrize("kind", contract.ChildKind, ids=str)
def test_however_long_the_node_children_of_two_attempts_share_no_name(
    kind: contract.ChildKind, changed: dict[str, str]
) -> None:
    owner = dataclasses.replace(OWNER, node="a" * 63)
    other = dataclasses.replace(owner, **changed)  # type: ignore[arg-type]
    assert naming.child_name(owner, kind) != naming.child_name(other, kind)


@hypothesis.given(node=strategies.text(min_size=1, max_size=80))
@hypothesis.example(node="a" * 63)
@hypothesis.example(node="a" * 64)
@hypothesis.example(node="größe_1")
@hypothesis.example(node="_")
@hypothesis.example(node="a" * 51 + "-b")
@hypothesis.example(node="0--.x")
def test_b34_every_name_fits_the_narrowest_provider(node: str) -> None:
    owner = dataclasses.replace(OWNER, node=node)
    names = [naming.name_of(owner)]
    names += [naming.child_name(owner, kind) for kind in contract.ChildKind]
    for name in names:
        assert RFC_1035.fullmatch(name), name


def test_tags_come_back_as_the_owner_they_were_made_of() -> None:
    assert naming.owner_of(naming.tags_of(OWNER)) == OWNER


@pytest.mark.parametrize("missing", sorted(naming.tags_of(OWNER)))
def test_one_tag_missing_or_empty_is_no_owner(missing: str) -> None:
    tags = dict(naming.tags_of(OWNER))
    assert naming.owner_of({**tags, missing: ""}) is None
    del tags[missing]
    assert naming.owner_of(tags) is None


def test_an_attempt_that_is_no_number_is_no_owner() -> None:
    assert naming.owner_of({**naming.tags_of(OWNER), naming.ATTEMPT: "first"}) is None
