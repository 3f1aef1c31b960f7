"""Checks an archive and lays its release out, ready to be put in use; for the root helper.

install.sh does the same with less at hand (no Python may be there yet).
"""

import io
from typing import BinaryIO

from installer import archive as archive_kit
from installer import layout as layout_kit
from installer import release as release_format
from installer import tree


def stage(
    archive: BinaryIO, *, layout: layout_kit.Layout, verify: archive_kit.Verify
) -> release_format.Release:
    """Makes the release's folder, unless it stands there sound; nothing is switched.

    The archive is read twice, the second time what the first has checked, so `archive` must be a
    file that nobody else can change. Raises `BadRelease`, `BadPayload`, and `OSError` for no room.
    """
    start = archive.tell()
    checked = archive_kit.read(archive, verify=verify)
    archive.seek(start + checked.payload_offset)
    payload = archive.read(checked.payload_size)
    tree.lay_out(
        layout,
        release=checked.release,
        install_sh=checked.install_sh,
        payload=io.BytesIO(payload),
        python=tree.this_python(),
    )
    return checked.release
