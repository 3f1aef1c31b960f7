"""Least-privilege policies, made from the table of calls: for the role, and for each session.

What is already there may only be touched where it carries our tag; what is made may only be made
with it; tags may only be set while something is made, so that nobody can make a foreign machine
ours by tagging it. EC2's reading calls know no narrower resource than `*`.

Known limits: what a policy says is shown here, what IAM makes of it only an account confirms. ARNs
are those of the partition `aws`.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from provisioning import contract, credentials, naming
from provisioning.aws import calls, trust

ALWAYS: Final = frozenset(
    {contract.Feature.CHECK, contract.Feature.CATALOG, contract.Feature.MACHINES}
)
EVERYTHING: Final = frozenset(contract.Feature)
MOST_SESSION_POLICY_BYTES: Final = 2048  # STS's limit
OWN_PRINCIPAL: Final = "PRINCIPAL-OF-THE-PLATFORM"

_TAG: Final = naming.INSTALLATION
_NEW: Final = {  # what each call makes, as its ARN names it
    calls.RUN.name: ("instance", "volume", "network-interface"),
    calls.CREATE_GROUP.name: ("security-group",),
    calls.IMPORT_KEY.name: ("key-pair",),
    calls.CREATE_VOLUME.name: ("volume",),
    calls.CREATE_SNAPSHOT.name: ("snapshot",),
    calls.CREATE_IMAGE.name: ("image", "snapshot"),
    calls.ALLOCATE.name: ("elastic-ip",),
}
_FOREIGN: Final = {  # what it may stand on, whoever made that
    calls.RUN.name: ("image", "security-group", "subnet"),
    calls.CREATE_GROUP.name: ("vpc",),
}
_OURS: Final = {  # and what it may stand on only where we made it
    calls.RUN.name: ("key-pair",),
    calls.CREATE_SNAPSHOT.name: ("volume",),
    calls.CREATE_IMAGE.name: ("instance",),
}
_DISK_KEYS: Final = [  # what EC2 does in our name with the key of an encrypted disk
    "kms:CreateGrant",
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKey*",
    "kms:ReEncrypt*",
]
_WITHOUT_ACCOUNT: Final = frozenset({"image", "snapshot"})


def rights(features: Collection[contract.Feature]) -> frozenset[str]:
    """Every right that these features need, tagging among them; rehearsals need none more."""
    needed = {
        row.right
        for row in calls.ALL
        if row.feature in features and row.right and not row.name.endswith(calls.DRY_RUN)
    }
    if contract.Feature.MACHINES in features:
        needed.add(calls.TAGGING)
    return frozenset(needed)


def least_privilege(
    features: Collection[contract.Feature] = EVERYTHING,
    *,
    installation: str | None = None,
) -> Mapping[str, Any]:
    """The policy to attach to the role or user. Without `installation`, any of ours may be touched.

    `CHECK`, `CATALOG` and `MACHINES` are always in it.
    """
    wanted = ALWAYS | frozenset(features)
    making = {row.name for row in calls.TAGGED_AT_CREATE if row.feature in wanted}
    changing = {
        row.right for row in calls.ALL if row.changes and row.feature in wanted and row.right
    }
    reading = rights(wanted) - changing - making - {calls.TAGGING}
    touching = sorted(changing - making)
    ours = _tagged("aws:ResourceTag", installation)
    statements = [
        _allow("Read", sorted(reading), ["*"]),
        *(
            _allow(
                f"Make{_operation(name)}",
                [name],
                _arns(_NEW[name]),
                _tagged("aws:RequestTag", installation),
            )
            for name in sorted(making)
        ),
        *(
            _allow(f"Use{_operation(name)}", [name], _arns(_FOREIGN[name]))
            for name in sorted(making & _FOREIGN.keys())
        ),
        *(
            _allow(f"UseOurs{_operation(name)}", [name], _arns(_OURS[name]), ours)
            for name in sorted(making & _OURS.keys())
        ),
        _allow("TouchOursOnly", touching, ["*"], ours),
        _allow(
            "TagWhileMaking",
            [calls.TAGGING],
            ["*"],
            {"StringEquals": {"ec2:CreateAction": sorted(map(_operation, making))}},
        ),
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def example_of(right: str, *, region: str, account: str) -> str | None:
    """An ARN that this call would make, for simulating its right; None: `*` will do."""
    kinds = _NEW.get(right)
    if kinds is None:
        return None
    return f"arn:aws:ec2:{region}:{'' if kinds[0] in _WITHOUT_ACCOUNT else account}:{kinds[0]}/any"


def setup_text(facts: Mapping[str, str]) -> str:
    """What to do at AWS for a connection: trust first, then rights, as text to paste.

    `facts` are those of the connection: kind, role_arn, external_id, subject, issuer_url, and
    principal, which is ours at AWS where it is known.
    """
    parts = [_trust_text(facts)]
    policy = least_privilege(installation=facts.get("installation") or None)
    parts.append(
        "The policy of the role or user (save as policy.json, then: aws iam put-role-policy "
        "--role-name NAME --policy-name enlist --policy-document file://policy.json):\n"
        + json.dumps(policy, indent=2)
    )
    return "\n\n".join(part for part in parts if part)


def _trust_text(facts: Mapping[str, str]) -> str:
    kind, arn = facts.get("kind", ""), facts.get("role_arn", "")
    if kind == credentials.Kind.AWS_WEB_IDENTITY:
        issuer = facts.get("issuer_url", "")
        if not issuer:
            return (
                "AWS cannot believe this Platform yet: set [cloud] issuer_url to a public https "
                "address, publish what `enlist cloud issuer export DIR` writes there, save again."
            )
        role = trust.role_of(arn)
        document = trust.web_identity_trust_policy(
            account=role.account,
            partition=role.partition,
            issuer_url=issuer,
            subject=facts.get("subject", ""),
        )
        first = f"Once an account:\n  {trust.provider_command(issuer)}\n\n"
    elif arn:
        document = trust.trust_policy(
            principal_arn=facts.get("base_principal") or OWN_PRINCIPAL,
            external_id=facts.get("external_id", ""),
        )
        first = (
            ""
            if facts.get("base_principal")
            else f"{OWN_PRINCIPAL} stands for the Arn that this prints on the Platform's host:\n"
            "  aws sts get-caller-identity\n\n"
        )
    else:
        return ""
    return (
        f"{first}The trust policy of the role {arn} (save as trust.json, then: aws iam "
        "update-assume-role-policy --role-name NAME --policy-document file://trust.json):\n"
        + json.dumps(document, indent=2)
    )


def session_policy(*, installation: str | None = None) -> str:
    """What a session of ours may do at most, as STS takes it: reading, making, and touching ours.

    The role's own policy says the rest; this one is broad in what it makes, to stay under STS's
    2048 characters, and narrow in what can be taken away.
    """
    touching = sorted(
        {row.right for row in calls.ALL if row.changes and row.right}
        - {row.name for row in calls.TAGGED_AT_CREATE}
    )
    making = sorted(row.name for row in calls.TAGGED_AT_CREATE)
    explaining = sorted(row.right for row in calls.EXPLAINING if row.right)
    document = {
        "Version": "2012-10-17",
        "Statement": [
            _allow(
                None,
                ["ec2:Describe*", calls.CONSOLE.name, calls.TAGGING, *making, *explaining],
                ["*"],
            ),
            _allow(None, touching, ["*"], _tagged("aws:ResourceTag", installation)),
            _allow(None, _DISK_KEYS, ["*"], {"StringLike": {"kms:ViaService": "ec2.*"}}),
        ],
    }
    return json.dumps(document, separators=(",", ":"))


def _allow(
    sid: str | None,
    actions: list[str],
    resources: list[str],
    condition: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    statement: dict[str, Any] = {"Effect": "Allow", "Action": actions, "Resource": resources}
    if condition is not None:
        statement["Condition"] = condition
    return statement if sid is None else {"Sid": sid, **statement}


def _tagged(key: str, installation: str | None) -> Mapping[str, Any]:
    if installation is None:
        return {"Null": {f"{key}/{_TAG}": "false"}}
    return {"StringEquals": {f"{key}/{_TAG}": installation}}


def _arns(kinds: tuple[str, ...]) -> list[str]:
    return [f"arn:aws:ec2:*:{'' if kind in _WITHOUT_ACCOUNT else '*'}:{kind}/*" for kind in kinds]


def _operation(name: str) -> str:
    return name.partition(":")[2]
