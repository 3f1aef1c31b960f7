"""The words that clients know agree with the models and with what providers and credentials are."""

import typing

import pydantic
import pytest

from provisioning import credentials, providers
from wire_protocol import cloud, cloud_machines, cloud_words


def test_the_words_are_those_of_the_models() -> None:
    assert set(cloud_words.PROVIDERS) == set(typing.get_args(cloud.Provider))
    assert set(cloud_words.CREDENTIAL_KINDS) == set(typing.get_args(cloud.CredentialKind))
    kinds = {"machine", *typing.get_args(cloud_machines.ChildKind)}
    assert set(cloud_words.ORPHAN_KINDS) == kinds
    assert set(cloud_words.ROLES) == set(typing.get_args(cloud_machines.Role))


def test_every_provider_and_kind_can_be_named() -> None:
    assert set(cloud_words.PROVIDERS) == {*providers.PROVIDERS, *providers.ALIASES}
    assert set(cloud_words.CREDENTIAL_KINDS) == set(credentials.Kind)


@pytest.mark.parametrize("kind", credentials.Kind)
def test_the_secret_that_is_asked_for_is_the_one_that_the_kind_needs(
    kind: credentials.Kind,
) -> None:
    must, _ = credentials.fields_of(kind)
    needed = [field for field in must if credentials.is_secret(field)]
    assert needed == [field for field in (cloud_words.SECRET_FIELD.get(kind),) if field]


def test_a_secret_of_any_kind_warns_as_an_argument() -> None:
    fields = {field for kind in credentials.Kind for part in credentials.fields_of(kind)
              for field in part}  # fmt: skip
    assert {field for field in fields if credentials.is_secret(field)} == cloud_words.SECRETS


@pytest.mark.parametrize(
    "more",
    ["\n", "\r\n", "\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5 thief", "\x85", " a\nb", " \x00"],
)
def test_a_public_key_is_one_line(more: str) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKHEChAn"
    for comment in ("", " jo@example", " Jo Doe (büro)"):
        assert cloud_machines.Ssh(public_key=key + comment, sources=[]).public_key == key + comment
    with pytest.raises(pydantic.ValidationError):
        cloud_machines.Ssh(public_key=key + more, sources=[])
