"""Credentials: parsed at the door, never shown, and of pasted documents no more than needed."""

import json

import pytest

from provisioning import credentials, providers

Kind = credentials.Kind
GCP_KEY = {
    "type": "service_account",
    "project_id": "p-1",
    "private_key_id": "k-1",
    "private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvg\n-----END PRIVATE KEY-----\n",
    "client_email": "enlist@p-1.iam.gserviceaccount.com",
    "token_uri": "https://evil.example/token",
    "auth_uri": "https://evil.example/auth",
}
FIELDS = {
    Kind.NONE: {},
    Kind.TOKEN: {"token": "secret-token-1"},
    Kind.AWS_KEYS: {"access_key_id": "AKIA1", "secret_access_key": "secret-key-1"},
    Kind.AWS_ROLE: {"role_arn": "arn:aws:iam::1:role/enlist", "external_id": "e-1"},
    Kind.AWS_WEB_IDENTITY: {"role_arn": "arn:aws:iam::1:role/enlist"},
    Kind.AWS_AMBIENT: {},
    Kind.AZURE_SECRET: {
        "tenant_id": "t",
        "client_id": "c",
        "subscription_id": "s",
        "client_secret": "secret-of-azure",
    },
    Kind.AZURE_FEDERATED: {"tenant_id": "t", "client_id": "c", "subscription_id": "s"},
    Kind.AZURE_TOKEN_FILE: {
        "tenant_id": "t",
        "client_id": "c",
        "subscription_id": "s",
        "federated_token_file": "/run/token",
    },
    Kind.GCP_KEY: {
        "project_id": "p-1",
        "client_email": "enlist@p-1.iam.gserviceaccount.com",
        "private_key_id": "k-1",
        "private_key": GCP_KEY["private_key"],
    },
    Kind.GCP_FEDERATED: {
        "project_id": "p",
        "project_number": "1",
        "pool_id": "pool",
        "provider_id": "provider",
    },
    Kind.UPCLOUD_TOKEN: {"token": "secret-token-2"},
    Kind.UPCLOUD_PASSWORD: {"username": "u", "password": "secret-password"},
    Kind.OPENSTACK_APPLICATION: {"application_id": "a", "application_secret": "secret-app"},
}
SECRET_TEXTS = ("secret-", "MIIEvg")


@pytest.mark.parametrize("kind", Kind, ids=str)
def test_every_kind_survives_its_sealed_form(kind: Kind) -> None:
    parsed = credentials.parse(kind, FIELDS[kind])
    assert credentials.from_sealed_form(credentials.sealed_form(parsed)) == parsed


@pytest.mark.parametrize("kind", Kind, ids=str)
def test_no_secret_stands_in_what_is_printed_or_shown(kind: Kind) -> None:
    parsed = credentials.parse(kind, FIELDS[kind])
    for text in (repr(parsed), str(parsed), str(credentials.shown(parsed))):
        assert not any(secret in text for secret in SECRET_TEXTS)


@pytest.mark.parametrize("kind", [kind for kind in Kind if FIELDS[kind]], ids=str)
def test_what_is_missing_is_named(kind: Kind) -> None:
    must, _ = credentials.fields_of(kind)
    with pytest.raises(credentials.Unusable, match=must[0]):
        credentials.parse(kind, {must[0]: "  "})


def test_a_field_that_is_unknown_is_named_and_its_value_is_not() -> None:
    with pytest.raises(credentials.Unusable) as caught:
        credentials.parse(Kind.TOKEN, {"token": "t", "passwd": "secret-x"})
    assert "'passwd'" in str(caught.value)
    assert "secret-x" not in str(caught.value)


def test_a_token_with_a_line_break_inside_is_refused_and_one_at_its_end_is_dropped() -> None:
    with pytest.raises(credentials.Unusable, match="cannot be printed"):
        credentials.parse(Kind.TOKEN, {"token": "abc\ndef"})
    parsed = credentials.parse(Kind.TOKEN, {"token": "abc\n"})
    assert isinstance(parsed, credentials.Token)
    assert parsed.token.reveal() == "abc"


def test_what_is_longer_than_any_credential_is_refused() -> None:
    with pytest.raises(credentials.Unusable, match="longer than"):
        credentials.parse(Kind.TOKEN, {"token": "x" * 20_000})
    with pytest.raises(credentials.Unusable, match="longer than"):
        credentials.parse(Kind.GCP_KEY, {"document": "x" * 20_000})


def test_of_a_pasted_key_no_address_is_kept() -> None:
    parsed = credentials.parse(Kind.GCP_KEY, {"document": json.dumps(GCP_KEY)})
    assert b"evil.example" not in credentials.sealed_form(parsed)
    assert credentials.shown(parsed)["client_email"] == GCP_KEY["client_email"]


@pytest.mark.parametrize("kind", ["external_account", "authorized_user", None])
def test_a_pasted_document_that_is_no_service_accounts_key_is_refused(kind: str | None) -> None:
    told = {**GCP_KEY, "type": kind, "credential_source": {"file": "/etc/shadow"}}
    with pytest.raises(credentials.Unusable, match="gcp-federated"):
        credentials.parse(Kind.GCP_KEY, {"document": json.dumps(told)})


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(
            {
                "tenant_id": "t",
                "client_id": "c",
                "client_secret": "secret-a",
                "subscription_id": "s",
                "resource_group": "rg",
            },
            id="as Levelrail has it",
        ),
        pytest.param(
            {
                "clientId": "c",
                "clientSecret": "secret-a",
                "subscriptionId": "s",
                "tenantId": "t",
                "resourceManagerEndpointUrl": "https://evil.example",
                "resource_group": "rg",
            },
            id="as az --sdk-auth writes it",
        ),
        pytest.param(
            {
                "appId": "c",
                "displayName": "enlist",
                "password": "secret-a",
                "tenant": "t",
                "subscription_id": "s",
                "resource_group": "rg",
            },
            id="as az ad sp create-for-rbac writes it",
        ),
    ],
)
def test_every_form_of_a_service_principal_is_read(told: dict[str, str]) -> None:
    document = json.dumps(told)
    parsed = credentials.parse(Kind.AZURE_SECRET, {"document": document})
    assert isinstance(parsed, credentials.AzureSecret)
    assert (parsed.tenant_id, parsed.client_id, parsed.subscription_id) == ("t", "c", "s")
    assert parsed.client_secret.reveal() == "secret-a"
    assert credentials.settings_of(Kind.AZURE_SECRET, document) == {"resource_group": "rg"}


@pytest.mark.parametrize("document", ["", "[]", "null", '"x"', "{", "\x00"])
def test_what_is_no_json_object_is_refused(document: str) -> None:
    with pytest.raises(credentials.Unusable, match="not"):
        credentials.parse(Kind.AZURE_SECRET, {"document": document})


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"kind": "new"}', b'{"kind": "token"}'])
def test_stored_bytes_that_are_no_credential_are_refused(data: bytes) -> None:
    with pytest.raises(credentials.Unusable):
        credentials.from_sealed_form(data)


def test_a_federated_policy_refuses_long_lived_keys_where_there_is_another_way() -> None:
    compat, federated = providers.Policy.COMPAT, providers.Policy.FEDERATED
    refused = {
        name: set(row.kinds_under(compat)) - set(row.kinds_under(federated))
        for name, row in providers.PROVIDERS.items()
    }
    assert {name: kinds for name, kinds in refused.items() if kinds} == {
        "aws": {Kind.AWS_KEYS},
        "azure": {Kind.AZURE_SECRET},
        "gcp": {Kind.GCP_KEY},
    }
    assert all(row.kinds_under(federated) for row in providers.PROVIDERS.values())
