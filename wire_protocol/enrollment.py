"""The enroll request and its answer.

The request is what a stranger may send, so every field has its bound here and the engine judges
nothing that this shape did not let through. Trust statements travel inside the answer in their own
form (`statements.py`) and are not read by these models.
"""

from typing import Annotated, Any, Literal

import pydantic

from wire_protocol import agent_url, enrollment_token, ids, labels, mesh, versions

MAX_CERTIFICATE_BYTES = 4096
MAX_DETAIL = 1024

Phase = Literal["fetching", "installing", "joining", "starting", "failed"]


def _node_id(text: str) -> str:
    return ids.parse_node_id(text)


def _token(text: pydantic.SecretStr) -> pydantic.SecretStr:
    enrollment_token.parse(text.get_secret_value())
    return text


def _url(text: str) -> str:
    return str(agent_url.parse(text))


def _reported(values: dict[str, str]) -> dict[str, str]:
    return labels.check(values, most=labels.MOST_REPORTED)


NodeIdField = Annotated[
    str,
    pydantic.Field(
        min_length=1, max_length=64, description="The node id that the token was issued for."
    ),
    pydantic.AfterValidator(_node_id),
]
TokenField = Annotated[
    pydantic.SecretStr,
    pydantic.Field(
        min_length=enrollment_token.LENGTH,
        max_length=enrollment_token.LENGTH,
        description="The enrollment token.",
    ),
    pydantic.AfterValidator(_token),
]


class Wire(pydantic.BaseModel):
    """Strict and closed: no coercion, no unknown field, no change after reading."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class Ticket(Wire):
    """The signed first-boot document that an ordered machine presents."""

    document: Annotated[str, pydantic.Field(max_length=8192)]
    signature: Annotated[str, pydantic.Field(max_length=128)]
    key_id: Annotated[str, pydantic.Field(pattern="^[0-9a-f]{16}$")]


class EnrollRequest(Wire):
    """What a joining machine sends."""

    node_id: NodeIdField
    token: TokenField
    certificate_pem: Annotated[
        str,
        pydantic.Field(
            min_length=1,
            max_length=MAX_CERTIFICATE_BYTES,
            description="One self-signed certificate, P-256 or Ed25519.",
        ),
    ]
    version: Annotated[str, pydantic.Field(max_length=64, pattern=versions.PATTERN)]
    url: Annotated[
        Annotated[str, pydantic.Field(max_length=300), pydantic.AfterValidator(_url)] | None,
        pydantic.Field(description="The Agent's https origin in listen mode."),
    ] = None
    reported_labels: Annotated[dict[str, str], pydantic.AfterValidator(_reported)] = {}
    instance: Annotated[
        dict[str, str] | None,
        pydantic.Field(max_length=16, description="What the metadata service says."),
    ] = None
    ticket: Ticket | None = None
    mesh_public_key: Annotated[
        Annotated[
            str,
            pydantic.Field(min_length=mesh.KEY_LENGTH, max_length=mesh.KEY_LENGTH),
            pydantic.AfterValidator(mesh.parse_public_key),
        ]
        | None,
        pydantic.Field(description="The machine's WireGuard public key."),
    ] = None


class PhaseReport(Wire):
    """What an ordered machine reports during its first boot; it spends nothing."""

    node_id: NodeIdField
    token: TokenField
    phase: Phase
    detail: Annotated[str, pydantic.Field(max_length=MAX_DETAIL)] = ""
    version: Annotated[str | None, pydantic.Field(max_length=64)] = None
    ticket: Ticket | None = None


class EnrollAnswer(pydantic.BaseModel):
    """What the Platform answers; `201` the first time, `200` for a repeat."""

    model_config = pydantic.ConfigDict(extra="ignore", frozen=True)

    node_id: str
    agent_id: str
    generation: int
    statement: str
    signatures: list[dict[str, Any]]
    trust_keys: list[dict[str, Any]]
    pins: list[str]
    gateway_url: str | None = None
    gateway_pins: list[str] = []
    reachable: bool | None = None
    reachable_reason: str | None = None
    mesh: dict[str, Any] | None = None
    mesh_refused: str | None = None
