"""From a checkout to built archives: the wheels of each Python, then one archive for each role."""

import pathlib
from collections.abc import Callable, Iterator, Sequence

from installer import release as release_format
from installer.build import bundle, locks, signing, sources, wheels


def make(
    source: sources.Source,
    *,
    roles: Sequence[release_format.Role],
    arches: Sequence[release_format.Arch],
    pythons: Sequence[str],
    cache: pathlib.Path,
    key: signing.ReleaseKey,
    say: Callable[[str], None],
) -> Iterator[bundle.Built]:
    """Build every combination, one archive at a time."""
    for role in roles:
        pins = locks.pins_for(source, role)
        for arch in arches:
            needed = {
                python: wheels.fetch(pins, python=python, arch=arch, cache=cache, say=say)
                for python in sorted(set(pythons))
            }
            built = bundle.build(source, role=role, arch=arch, wheels=needed, key=key)
            say(
                f"Built {built.release.archive_name}: {len(built.data) / 1e6:.1f} MB, "
                f"sha256 {built.sha256}"
            )
            yield built
