"""Builds the worker's bundle of a Platform that runs from a checkout and has none of its version.

So that machines can install from `enlist serve --bundle-port` without a release at hand: from the
code that runs here and the locked wheels, which are downloaded once. It is signed by a key made for
this data directory alone; the installer that is served carries its public half. The work is a
process of its own, with the least claim on the processor.

Known limit: a Platform that is not a checkout is given its bundles by its installer, or by
`enlist platform bundles add DIR`; a bundle of this version that is there is never built anew.
"""

import asyncio
import dataclasses
import functools
import logging
import os
import pathlib
import platform
import shutil
import sys
import tempfile
from typing import Final

from installer import archive as archives
from installer import release as releases
from platform_server.audit import actions
from platform_server.bundles import shelf
from platform_server.settings import groups
from platform_server.store import contract
from runtime_kit import clock as clock_kit
from runtime_kit import private_files
from wire_protocol import product

_LOG: Final = logging.getLogger(__name__)
KEY: Final = "own-release.key"
ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
AGAIN_SECONDS: Final = 300.0
BUILD_SECONDS: Final = 1800.0
_TEMPORARY: Final = 75
_LEAST_CLAIM: Final = 19
_ACTOR: Final = "platform"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where bundles lie, and whose they are."""

    data_dir: pathlib.Path
    folder: pathlib.Path
    settings: groups.Settings
    root: pathlib.Path = ROOT


class NotBuilt(Exception):
    """It cannot be built; `is_temporary` says whether trying again may help."""

    def __init__(self, sentence: str, *, is_temporary: bool) -> None:
        super().__init__(sentence)
        self.is_temporary = is_temporary


def is_wanted(place: Place) -> bool:
    """Whether bundles are served here, none is of this version, and one can be built."""
    if place.settings.bundles.port is None or not place.settings.bundles.build:
        return False
    if not (place.root / ".git").exists():
        return False
    present = shelf.Shelf(place.folder).all()
    return not any(_fits(one.release) for one in present)


async def keep(place: Place, *, store: contract.Store, clock: clock_kit.Clock) -> None:
    """Builds it if it is wanted; runs for ever, for a supervised task."""
    while await asyncio.to_thread(is_wanted, place):
        _LOG.warning(
            "No worker bundle of this version is here: building one from this installation",
            extra={"version": product.VERSION, "arch": platform.machine()},
        )
        started = clock.monotonic()
        try:
            found = await build(place, store=store, clock=clock)
        except NotBuilt as fault:
            _LOG.error("The worker bundle could not be built: %s", fault)
            if not fault.is_temporary:
                break
            await clock.sleep(AGAIN_SECONDS)
        else:
            _LOG.warning(
                "Machines can install from this Platform now",
                extra={
                    "bundle": found.release.archive_name,
                    "seconds": round(clock.monotonic() - started, 1),
                },
            )
    await asyncio.Event().wait()


async def build(place: Place, *, store: contract.Store, clock: clock_kit.Clock) -> archives.Archive:
    """Builds, records and adds it; raises `NotBuilt`."""
    private_files.ensure_private_folder(place.folder)
    aside = pathlib.Path(tempfile.mkdtemp(prefix=".building-", dir=place.folder))
    try:
        key = await asyncio.to_thread(_ensure_key, place.data_dir / KEY)
        await _run(place, out=aside, key=key)
        found, path = await asyncio.to_thread(_read, aside, key=key)
        await store.transact(functools.partial(_record, found, place, clock))
        await asyncio.to_thread(shelf.Shelf(place.folder).put, found, upload=path)
    except OSError as error:
        raise NotBuilt(f"{error.strerror or error}.", is_temporary=True) from error
    finally:
        await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)
    return found


async def _run(place: Place, *, out: pathlib.Path, key: pathlib.Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "installer.build.bundle_command", "--role", "worker"),
        *("--key", str(key), "--out", str(out)),
        cwd=place.root,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=functools.partial(os.nice, _LEAST_CLAIM),
    )
    try:
        async with asyncio.timeout(BUILD_SECONDS):
            _, said = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    if process.returncode != 0:
        last = said.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise NotBuilt(last[0][-500:], is_temporary=process.returncode == _TEMPORARY)


def _ensure_key(path: pathlib.Path) -> pathlib.Path:
    from installer.build import signing as release_signing  # noqa: PLC0415 - only in a checkout

    if not path.exists():
        release_signing.make(path)
    return path


def _read(folder: pathlib.Path, *, key: pathlib.Path) -> tuple[archives.Archive, pathlib.Path]:
    from installer.build import signing as release_signing  # noqa: PLC0415 - only in a checkout

    (path,) = folder.glob("enlist-worker-*.tar")
    with path.open("rb") as file:
        return archives.read(file, verify=release_signing.load(key).verify), path


def _fits(release: releases.Release) -> bool:
    return (release.version, release.arch) == (product.VERSION, platform.machine())


async def _record(
    found: archives.Archive, place: Place, clock: clock_kit.Clock, tx: contract.Tx
) -> None:
    await actions.append(
        tx,
        action=actions.Action(
            at=clock.now(),
            actor=_ACTOR,
            action="platform.bundle-add",
            target=found.release.archive_name,
            environment=place.settings.platform.environment,
            infra=place.settings.platform.infra,
            details={"sha256": found.sha256, "own_key": True, "built_here": True},
        ),
    )
