"""Models of the routes about bundles: what a Platform keeps for machines to install from."""

from typing import Annotated, Literal

import pydantic

from wire_protocol import admin

MOST_PIECE_BYTES = 524_288  # with base64 and JSON around it still within `api.body_bytes`
MOST_BYTES = 1_073_741_824
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
Sha256 = Annotated[
    str,
    pydantic.Field(pattern="^[0-9a-f]{64}$", description="The archive's SHA-256, in hex."),
]
Size = Annotated[
    int, pydantic.Field(ge=1, le=MOST_BYTES, description="The archive's bytes in all."), admin.WHOLE
]


class Bundle(admin.Answer):
    """An archive that machines can install from."""

    sha256: str
    size: int
    name: str
    role: Literal["worker", "platform"]
    version: str
    arch: str
    release_id: str
    pythons: list[str]
    is_latest: bool
    url: str | None  # None while the bundle port is off


class BundleList(admin.Answer):
    """`GET /platform/bundles`: the newest first."""

    bundles: list[Bundle]


class PieceRequest(admin.Request):
    """`POST /platform/bundle-pieces`."""

    sha256: Sha256
    size: Size
    offset: Annotated[
        int,
        pydantic.Field(ge=0, le=MOST_BYTES, description="Where the piece begins; 0 begins anew."),
        admin.WHOLE,
    ]
    data: Annotated[
        str,
        pydantic.Field(
            min_length=1,
            max_length=(MOST_PIECE_BYTES + 2) // 3 * 4,
            pattern=_BASE64,
            description="The piece's bytes in base64.",
        ),
    ]


class PieceAnswer(admin.Answer):
    """How much of the archive is there."""

    received: int


class AddRequest(admin.Request):
    """`POST /platform/bundles`: all pieces are there."""

    sha256: Sha256
    size: Size
    release_key: Annotated[
        str | None,
        pydantic.Field(
            max_length=4096,
            description="The public key (PEM) that signed it, in place of the Platform's own; "
            "on the Platform's machine only.",
        ),
    ] = None
