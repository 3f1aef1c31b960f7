"""What a Platform keeps for machines to install from: adding, listing, removing."""

import base64
from typing import TYPE_CHECKING

from enlist import calls, methods

if TYPE_CHECKING:
    from wire_protocol import admin, bundles

PIECE_BYTES = 524_288


def list_() -> "calls.Call[bundles.BundleList]":
    """All bundles, the newest first."""
    return calls.Call(method="GET", path="/platform/bundles", answer="bundles:BundleList")


def put_piece(
    sha256: str, *, size: int, offset: int, data: bytes
) -> "calls.Call[bundles.PieceAnswer]":
    """Sends a piece, at most `PIECE_BYTES`, of the archive with that hash; from 0 on, in order."""
    return calls.Call(
        method="POST",
        path="/platform/bundle-pieces",
        answer="bundles:PieceAnswer",
        body={
            "sha256": sha256,
            "size": size,
            "offset": offset,
            "data": base64.b64encode(data).decode("ascii"),
        },
        repeatable=True,
    )


def add(sha256: str, *, size: int, release_key: str | None = None) -> "calls.Call[admin.Done]":
    """Adds an archive whose pieces are all there; raises `Invalid` where its signature is wrong.

    `release_key` (PEM) may be named on the Platform's own machine only.
    """
    return calls.Call(
        method="POST",
        path="/platform/bundles",
        answer="admin:Done",
        body=calls.given(sha256=sha256, size=size, release_key=release_key),
        repeatable=True,
    )


def remove(sha256: str) -> "calls.Call[admin.Done]":
    """Removes a bundle; raises `NotFound`."""
    return calls.Call(
        method="DELETE", path=f"/platform/bundles/{calls.part(sha256)}", answer="admin:Done"
    )


class Bundles(methods.Noun):
    """`client.bundles`."""

    list = methods.Sync(list_)
    put_piece = methods.Sync(put_piece)
    add = methods.Sync(add)
    remove = methods.Sync(remove)


class AsyncBundles(methods.AsyncNoun):
    """`client.bundles`, to be awaited."""

    list = methods.Async(list_)
    put_piece = methods.Async(put_piece)
    add = methods.Async(add)
    remove = methods.Async(remove)
