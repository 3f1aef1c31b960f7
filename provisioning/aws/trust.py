"""Who a role trusts: ExternalIds of our own making, trust policies, and the names in ARNs.

An ExternalId keeps a role from being taken on for somebody else who knows its ARN (the confused
deputy): it is random, ours, one a connection, and never chosen by a person. It is no secret.
"""

import dataclasses
import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

from provisioning import federation

_ROLE: Final = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):iam::(?P<account>\d{12}):role/(?P<path>[\w+=,.@/-]{1,512})",
    re.ASCII,
)
_ASSUMED: Final = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):sts::(?P<account>\d{12}):assumed-role/(?P<role>[^/]+)/.+"
)


class Unusable(Exception):
    """That is no ARN of a role: arn:aws:iam::ACCOUNT:role/NAME, as the console shows it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role's ARN in its parts."""

    partition: str
    account: str
    path: str

    @property
    def arn(self) -> str:
        """As AWS writes it."""
        return f"arn:{self.partition}:iam::{self.account}:role/{self.path}"


def role_of(arn: str) -> Role:
    """The parts of a role's ARN; raises `Unusable`."""
    found = _ROLE.fullmatch(arn)
    if found is None:
        raise Unusable(
            f"{arn!r} is no ARN of a role. It reads arn:aws:iam::123456789012:role/NAME; "
            "find it with: aws iam get-role --role-name NAME --query Role.Arn"
        )
    return Role(**found.groupdict())


def new_external_id() -> str:
    """A fresh ExternalId for one connection."""
    return f"enlist-{secrets.token_hex(16)}"


def principal_of(caller_arn: str) -> str:
    """The principal that a trust or identity policy names for whoever `caller_arn` is.

    A session of a role is named by its role; its path is not told in a session's ARN, so a role
    that has one has to be written by hand.
    """
    found = _ASSUMED.fullmatch(caller_arn)
    if found is None:
        return caller_arn
    return f"arn:{found['partition']}:iam::{found['account']}:role/{found['role']}"


def trust_policy(*, principal_arn: str, external_id: str) -> Mapping[str, Any]:
    """What the role's trust policy has to say for `aws-role`: this principal, with this id."""
    return _document(
        {
            "Effect": "Allow",
            "Principal": {"AWS": principal_arn},
            "Action": "sts:AssumeRole",
            "Condition": {"StringEquals": {"sts:ExternalId": external_id}},
        }
    )


def web_identity_trust_policy(
    *, account: str, issuer_url: str, subject: str, partition: str = "aws"
) -> Mapping[str, Any]:
    """The same for `aws-web-identity`: our issuer, this connection alone, this audience alone."""
    issuer = issuer_url.removeprefix("https://")
    return _document(
        {
            "Effect": "Allow",
            "Principal": {"Federated": f"arn:{partition}:iam::{account}:oidc-provider/{issuer}"},
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {
                "StringEquals": {
                    f"{issuer}:aud": federation.AWS_AUDIENCE,
                    f"{issuer}:sub": subject,
                }
            },
        }
    )


def provider_command(issuer_url: str) -> str:
    """The command that makes our issuer known to an account, once."""
    return (
        f"aws iam create-open-id-connect-provider --url {issuer_url} "
        f"--client-id-list {federation.AWS_AUDIENCE}"
    )


def _document(statement: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"Version": "2012-10-17", "Statement": [statement]}
