"""Connections as somebody wants them: which credentials are taken, and what is never taken."""

import json
from typing import Any

import pytest

from platform_server.cloud import wishes
from platform_server.settings import groups
from provisioning import credentials

AZURE = {
    "tenantId": "t-1",
    "clientId": "c-1",
    "clientSecret": "az-secret-value",
    "subscriptionId": "s-1",
}
AWS_KEYS = {"access_key_id": "AKIA0", "secret_access_key": "aws-secret-value"}
GCP = {
    "type": "service_account",
    "project_id": "p-1",
    "client_email": "a@p-1.iam.gserviceaccount.com",
    "private_key_id": "k-1",
    "private_key": "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n",
    "token_uri": "https://evil.example/token",
}
LONG_LIVED: dict[str, dict[str, Any]] = {
    "aws-keys": {"provider": "aws", "fields": AWS_KEYS, "settings": {"region": "us-east-1"}},
    "azure-secret": {
        "provider": "azure",
        "fields": {"document": json.dumps(AZURE)},
        "settings": {"resource_group": "rg"},
    },
    "gcp-key": {"provider": "gcp", "fields": {"document": json.dumps(GCP)}, "settings": {}},
}


def _wish(kind: str, **more: Any) -> wishes.Wish:
    values: dict[str, Any] = {
        "name": "main",
        "provider": "hetzner",
        "kind": kind,
        "fields": {"token": "t-0123456789"},
        "settings": {},
        "infra": "default",
        "actor": "person:somebody",
    }
    return wishes.Wish(**{**values, **more})


def _cloud(**more: Any) -> groups.CloudGroup:
    return groups.CloudGroup.model_validate(more)


@pytest.mark.parametrize("kind", sorted(LONG_LIVED))
def test_federated_refuses_what_lives_long_and_names_what_to_use(kind: str) -> None:
    with pytest.raises(wishes.CredentialKindRejected) as caught:
        wishes.parse(_wish(kind, **LONG_LIVED[kind]), cloud=_cloud())
    sentence = str(caught.value)
    assert "compat" in sentence
    assert "secret-value" not in sentence


@pytest.mark.parametrize("kind", sorted(LONG_LIVED))
def test_compat_takes_it(kind: str) -> None:
    cloud = _cloud(credential_policy="compat")
    parsed = wishes.parse(_wish(kind, **LONG_LIVED[kind]), cloud=cloud)
    assert parsed.credential.kind is credentials.Kind(kind)


@pytest.mark.parametrize("provider", ["hetzner", "digitalocean"])
def test_where_a_token_is_all_there_is_both_policies_take_it(provider: str) -> None:
    for policy in ("federated", "compat"):
        cloud = _cloud(credential_policy=policy)
        parsed = wishes.parse(_wish("token", provider=provider), cloud=cloud)
        assert parsed.credential.kind is credentials.Kind.TOKEN


def test_a_pasted_document_is_read_by_field_and_its_addresses_are_dropped() -> None:
    cloud = _cloud(credential_policy="compat")
    parsed = wishes.parse(_wish("gcp-key", **LONG_LIVED["gcp-key"]), cloud=cloud)
    assert "evil.example" not in credentials.sealed_form(parsed.credential).decode()


def test_an_external_id_is_never_taken_from_a_person() -> None:
    wish = _wish(
        "aws-role",
        provider="aws",
        fields={"role_arn": "arn:aws:iam::1:role/x", "external_id": "guessable"},
        settings={"region": "us-east-1"},
    )
    with pytest.raises(wishes.Invalid, match="ExternalId is made here"):
        wishes.parse(wish, cloud=_cloud())


def test_a_federated_kind_needs_a_public_issuer() -> None:
    wish = _wish(
        "aws-web-identity",
        provider="aws",
        fields={"role_arn": "arn:aws:iam::1:role/x"},
        settings={"region": "us-east-1"},
    )
    with pytest.raises(wishes.Invalid, match="issuer_url"):
        wishes.parse(wish, cloud=_cloud())
    parsed = wishes.parse(wish, cloud=_cloud(issuer_url="https://issuer.example"))
    assert parsed.credential.kind is credentials.Kind.AWS_WEB_IDENTITY


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a name with capitals": ({"name": "Main"}, "small letters"),
    "no such provider": ({"provider": "nimbus"}, "no provider 'nimbus'"),
    "no such kind": ({"kind": "password"}, "no kind of credential"),
    "a kind of another provider": ({"kind": "aws-role"}, "not connected with aws-role"),
    "an unknown field": ({"fields": {"token": "t", "colour": "red"}}, "no field 'colour'"),
    "a missing field": ({"fields": {}}, "also needs: token"),
    "an unknown setting": ({"settings": {"colour": "red"}}, "no setting 'colour'"),
    "an address": ({"settings": {"endpoint": "https://elsewhere"}}, "allow_endpoints"),
    "plain http": ({"settings": {"endpoint": "http://192.0.2.1/"}}, "neither https nor"),
}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_what_is_out_of_shape_is_refused_by_name(what: str) -> None:
    more, sentence = REFUSED[what]
    with pytest.raises(wishes.Invalid, match=sentence) as caught:
        wishes.parse(_wish(**{"kind": "token", **more}), cloud=_cloud())
    assert "t-0123456789" not in str(caught.value)


def test_a_wish_prints_no_secret() -> None:
    assert "t-0123456789" not in repr(_wish("token"))


def test_openstack_on_this_host_is_saved_with_allow_endpoints_alone() -> None:
    wish = _wish(
        "openstack-application",
        provider="openstack",
        fields={"application_id": "a", "application_secret": "s"},
        settings={"auth_url": "http://127.0.0.1:5000/v3", "region": "RegionOne"},
    )
    with pytest.raises(wishes.Invalid, match="allow_endpoints"):
        wishes.parse(wish, cloud=_cloud(credential_policy="compat"))
    parsed = wishes.parse(wish, cloud=_cloud(credential_policy="compat", allow_endpoints=True))
    assert parsed.settings["auth_url"] == "http://127.0.0.1:5000/v3"
