"""Takes a released folder to a target, so that whoever reads there meanwhile finds a whole release.

First what has a content of its own, then the signed list, last the lines that name the latest
archive. A version that is out never changes: another archive under a name that the target already
lists is refused. What the target listed before, signed by the same key, stays listed.
"""

import functools
import pathlib
import random
import tempfile
from collections.abc import Callable
from typing import Final, TypeVar

from installer import release as release_format
from installer.build import signing, targets
from installer.waiting import Waits
from runtime_kit import retry

Result = TypeVar("Result")

TRIES: Final = retry.Schedule(first_seconds=1.0, cap_seconds=20.0, tries=6)


def upload(
    folder: pathlib.Path,
    target: targets.Target,
    *,
    key: signing.ReleaseKey,
    waits: Waits,
    said: Callable[[str], None],
    schedule: retry.Schedule = TRIES,
) -> None:
    """Put all files of the folder's list, and the list.

    Raises:
        UploadRefused: the target will not take them, or holds another archive of this version.
        UploadFailed: it took too many tries.
    """
    new = release_format.parse_sums((folder / release_format.SUMS).read_bytes())
    latest = [name for name in new if name in _LATEST]
    trying = _Trying(waits=waits, schedule=schedule)
    before = trying.run(functools.partial(_listed, target, key=key))
    for name, sha256 in before.items():
        if release_format.name_of(name) is not None and new.get(name, sha256) != sha256:
            raise targets.UploadRefused(
                f"The target holds another {name}. What is released does not change: raise VERSION."
            )
    for name in new:
        if name in latest or before.get(name) == new[name]:
            continue
        trying.run(functools.partial(target.put, name, folder / name))
        said(name)
    with tempfile.TemporaryDirectory(prefix="enlist-release-") as room:
        listed = pathlib.Path(room, release_format.SUMS)
        listed.write_bytes(release_format.sums(sorted({**before, **new}.items())))
        signature = pathlib.Path(room, release_format.SUMS_SIGNATURE)
        signature.write_bytes(key.sign(listed.read_bytes()))
        for path in (listed, signature, *(folder / name for name in latest)):
            trying.run(functools.partial(target.put, path.name, path))
            said(path.name)


_LATEST: Final = frozenset(
    release_format.latest_name(role, arch)
    for role in release_format.ROLES
    for arch in release_format.ARCHES
)


def _listed(target: targets.Target, *, key: signing.ReleaseKey) -> dict[str, str]:
    """What the target lists and this key signed.

    A list without its signature is what an upload leaves that was cut off between the two; the
    archives themselves are signed, so nothing hangs on it but the refusal to change one.
    """
    most = release_format.MOST_SUMS_BYTES
    listed = target.get(release_format.SUMS, most_bytes=most)
    signature = target.get(release_format.SUMS_SIGNATURE, most_bytes=most)
    if listed is None or signature is None or not key.verify(listed, signature):
        return {}
    return release_format.parse_sums(listed)


class _Trying:
    """The one loop that repeats."""

    def __init__(self, *, waits: Waits, schedule: retry.Schedule) -> None:
        self._waits = waits
        self._schedule = schedule

    def run(self, once: Callable[[], Result]) -> Result:
        for seconds in self._schedule.waits(chance=random.SystemRandom()):
            try:
                return once()
            except targets.UploadFailed:
                self._waits.wait(seconds)
        return once()
