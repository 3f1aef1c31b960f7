"""`/platform/bundles`: what machines can install from; adding, listing, removing.

An archive arrives in pieces and is added when it is whole, is what it says it is, and is signed by
the release key that this Platform trusts. Which key that is decides who can run anything as root
on new machines, so a caller may name another one on the Platform's own machine only. What is added
or removed is recorded first; a call that was cut off after that is finished by the same call again.
"""

import asyncio
import base64
import binascii
import errno
import functools
import pathlib
import sys
from collections.abc import Callable
from typing import Final, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from installer import archive as archives
from installer import release as releases
from platform_server.bundles import shelf, uploads
from platform_server.endpoints import calls, refusals, routes
from platform_server.settings import groups
from platform_server.store import contract
from runtime_kit import private_files
from wire_protocol import admin, bundles, signing

RELEASE_KEY: Final = "release.pub"
_MAX_KEY_BYTES: Final = 4096
_RETRY_SECONDS: Final = 60

T = TypeVar("T")


class BundleRoutes:
    """The handlers over one folder; `url` is the bundle port's, None while it is off."""

    def __init__(
        self, folder: pathlib.Path, *, settings: groups.BundlesGroup, url: str | None
    ) -> None:
        self._shelf = shelf.Shelf(folder)
        self._uploads = uploads.Uploads(folder, most_bytes=settings.most_bytes)
        self._settings = settings
        self._url = url
        self._one_at_a_time = asyncio.Lock()

    async def list_all(self, call: calls.Call[None, routes.NoQuery]) -> bundles.BundleList:
        """Everything in one page; there are never many."""
        del call
        found = await asyncio.to_thread(self._shelf.all)
        return bundles.BundleList(bundles=[self._shown(one) for one in found])

    async def put_piece(
        self, call: calls.Call[bundles.PieceRequest, routes.NoQuery]
    ) -> calls.Answer:
        """Takes a piece of an archive; nothing is served of it."""
        body = call.body
        try:
            piece = base64.b64decode(body.data, validate=True)
        except (binascii.Error, ValueError):
            raise refusals.invalid("data", "data: it is not base64.") from None
        if call.check:
            return calls.Reply(body=admin.Checked(changes=[]), status=200)
        async with self._one_at_a_time:
            received = await _written(
                functools.partial(
                    self._uploads.put,
                    body.sha256,
                    offset=body.offset,
                    size=body.size,
                    piece=piece,
                    now=call.now(),
                )
            )
        return bundles.PieceAnswer(received=received)

    async def add(self, call: calls.Call[bundles.AddRequest, routes.NoQuery]) -> calls.Answer:
        """Checks the archive, records who added it, and has it served."""
        body = call.body
        async with self._one_at_a_time:
            if await asyncio.to_thread(self._shelf.is_fresh, body.sha256):
                return await call.mutate(_nothing)
            if call.check:
                return await call.mutate(functools.partial(_planned, body))
            key = await self._key(call)
            source, found = await self._checked(body, key=key)
            await call.mutate(functools.partial(_added, call, found))
            await _written(functools.partial(self._shelf.put, found, upload=source))
        changes = [_change("add", found)]
        return admin.Done(changes=changes)

    async def remove(self, call: calls.Call[None, routes.NoQuery]) -> calls.Answer:
        """Records who removed it, and removes it."""
        sha256 = call.path["bundle"]
        async with self._one_at_a_time:
            known = {one.sha256: one for one in await asyncio.to_thread(self._shelf.all)}
            there = len(sha256) == 64 and sha256.isalnum() and self._shelf.holds(sha256)
            if not there:
                raise refusals.Refusal("not-found", "There is no bundle with this hash.")
            name = known[sha256].name if sha256 in known else "an unfinished bundle"
            reply = await call.mutate(functools.partial(_removed, call, sha256, name))
            if not call.check:
                await _written(functools.partial(self._shelf.take_out, sha256))
        return reply

    async def _checked(
        self, body: bundles.AddRequest, *, key: ed25519.Ed25519PublicKey
    ) -> tuple[pathlib.Path, archives.Archive]:
        """The file, read whole and found to be what it says."""
        source = self._uploads.path(body.sha256)
        if self._uploads.size(body.sha256) != body.size:
            held = self._shelf.holds(body.sha256)  # added before, and cut off before the end
            if held is None:
                raise refusals.Refusal(
                    "conflict",
                    f"{self._uploads.size(body.sha256)} of {body.size} bytes of this archive are "
                    "here: send the other pieces first.",
                )
            source = held
        try:
            found = await asyncio.to_thread(_read, source, body=body, key=key)
        except releases.BadRelease as fault:
            await asyncio.to_thread(self._uploads.forget, body.sha256)
            raise refusals.invalid("sha256", str(fault)) from None
        return source, found

    async def _key(
        self, call: calls.Call[bundles.AddRequest, routes.NoQuery]
    ) -> ed25519.Ed25519PublicKey:
        named = call.body.release_key
        if named is not None:
            if not call.principal.is_local:
                raise refusals.Refusal(
                    "not-permitted",
                    "Another release key may be named on the Platform's own machine only; this "
                    "Platform's stands in bundles.release_key_file.",
                )
            return _parse_key(named.encode(), what="release_key")
        path = release_key_file(self._settings)
        if path is None:
            raise refusals.Refusal(
                "conflict",
                "This Platform knows no release key, so it cannot tell whose bundle this is: set "
                "bundles.release_key_file, or name the key with --release-key FILE on its machine.",
            )
        try:
            data = await asyncio.to_thread(
                private_files.read_bounded, path, max_bytes=_MAX_KEY_BYTES
            )
        except (OSError, private_files.FileTooLarge) as fault:
            raise refusals.Refusal(
                "conflict", f"The release key {path} cannot be read: {fault}"
            ) from None
        return _parse_key(data, what=str(path))

    def _shown(self, one: shelf.Bundle) -> bundles.Bundle:
        return bundles.Bundle(
            sha256=one.sha256,
            size=one.size,
            name=one.name,
            role=one.release.role,
            version=one.release.version,
            arch=one.release.arch,
            release_id=one.release.id,
            pythons=list(one.release.pythons),
            is_latest=one.is_latest,
            url=None if self._url is None else f"{self._url}{one.path}",
        )

    def served(self) -> tuple[routes.Route, ...]:
        """The routes of this module."""
        return (
            routes.Route(
                method="GET",
                path="/api/v1/platform/bundles",
                summary="List the bundles that machines can install from, the newest first.",
                handler=self.list_all,
                answer=bundles.BundleList,
            ),
            routes.Route(
                method="POST",
                path="/api/v1/platform/bundle-pieces",
                summary="Send a piece of a bundle that is to be added.",
                handler=self.put_piece,
                request=bundles.PieceRequest,
                answer=bundles.PieceAnswer,
                changes=True,
                problems=("conflict", "store-full"),
            ),
            routes.Route(
                method="POST",
                path="/api/v1/platform/bundles",
                summary="Add a bundle whose pieces are all there, if its signature is right.",
                handler=self.add,
                request=bundles.AddRequest,
                answer=admin.Done,
                changes=True,
                problems=("conflict", "store-full"),
            ),
            routes.Route(
                method="DELETE",
                path="/api/v1/platform/bundles/{bundle}",
                summary="Remove a bundle.",
                handler=self.remove,
                answer=admin.Done,
                changes=True,
                parameters={"bundle": "The bundle's SHA-256, 64 hex digits."},
                problems=("not-found",),
            ),
        )


def release_key_file(settings: groups.BundlesGroup) -> pathlib.Path | None:
    """The key that bundles must be signed with, or None where nobody has named one."""
    if settings.release_key_file is not None:
        return pathlib.Path(settings.release_key_file)
    release = pathlib.Path(sys.prefix).resolve()
    installed = release.parent.parent / RELEASE_KEY
    return installed if release.parent.name == "releases" and installed.is_file() else None


def _read(
    path: pathlib.Path, *, body: bundles.AddRequest, key: ed25519.Ed25519PublicKey
) -> archives.Archive:
    """The archive, checked; raises `BadRelease`."""
    with path.open("rb") as file:
        found = archives.read(file, verify=signing.verifier_of(key))
    if (found.sha256, found.size) != (body.sha256, body.size):
        raise releases.BadRelease("The archive's bytes have another hash than was said.")
    if found.release.role != "worker":
        raise releases.BadRelease(
            f"This is a {found.release.role}'s bundle; machines install a worker's."
        )
    return found


def _parse_key(data: bytes, *, what: str) -> ed25519.Ed25519PublicKey:
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise refusals.invalid("release_key", f"{what} is no Ed25519 public key in PEM form.")
    return key


async def _written(work: Callable[[], T]) -> T:
    """Runs what writes to the disk, in a thread; what it refuses becomes an answer."""
    try:
        return await asyncio.to_thread(work)
    except uploads.Refused as fault:
        raise refusals.Refusal("conflict", str(fault)) from None
    except uploads.NoRoom as fault:
        raise refusals.Refusal(
            "store-full", str(fault), retry_after_seconds=_RETRY_SECONDS
        ) from None
    except OSError as fault:
        if fault.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise refusals.Refusal(
            "store-full",
            "The disk is full; nothing that is served was changed. Make room and run the same "
            "command again.",
            retry_after_seconds=_RETRY_SECONDS,
        ) from None


async def _nothing(_tx: contract.Tx) -> calls.Changed:
    return calls.Changed(changes=[], answer=admin.Done(changes=[]))


async def _planned(body: bundles.AddRequest, _tx: contract.Tx) -> calls.Changed:
    detail = f"{body.size} bytes, if its signature is right"
    return calls.Changed(
        changes=[admin.Change(action="add", target=f"bundle {body.sha256}", detail=detail)]
    )


async def _added(
    call: calls.Call[bundles.AddRequest, routes.NoQuery],
    found: archives.Archive,
    tx: contract.Tx,
) -> calls.Changed:
    await call.record(
        tx,
        action="platform.bundle-add",
        target=found.release.archive_name,
        infra=call.settings.platform.infra,
        details={"sha256": found.sha256, "own_key": call.body.release_key is None},
    )
    changes = [_change("add", found)]
    return calls.Changed(changes=changes, answer=admin.Done(changes=changes))


async def _removed(
    call: calls.Call[None, routes.NoQuery], sha256: str, name: str, tx: contract.Tx
) -> calls.Changed:
    await call.record(
        tx,
        action="platform.bundle-remove",
        target=name,
        infra=call.settings.platform.infra,
        details={"sha256": sha256},
    )
    changes = [admin.Change(action="remove", target=name, detail=f"sha256 {sha256}")]
    return calls.Changed(changes=changes, answer=admin.Done(changes=changes))


def _change(action: str, found: archives.Archive) -> admin.Change:
    return admin.Change(
        action=action, target=found.release.archive_name, detail=f"sha256 {found.sha256}"
    )
