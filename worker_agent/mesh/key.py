"""The machine's WireGuard key: made here, kept in one private file, and replaced at no loss.

Nothing hangs on this key for long: the Platform takes another over the node's proved session. So a
file that is empty or damaged is made anew, unlike that of the identity.
"""

import logging

from runtime_kit import private_files, secret
from runtime_kit.wireguard import keys
from worker_agent.settings import paths

LOGGER = logging.getLogger(__name__)
MAX_BYTES = 1024


def ensure(where: paths.Paths) -> secret.Secret:
    """The key, made where there is none that can be used; raises `OSError` of the disk."""
    found = find(where)
    return found if found is not None else replace(where)


def find(where: paths.Paths) -> secret.Secret | None:
    """The key on the disk, or None; changes nothing."""
    try:
        content = private_files.read_private(where.mesh_key, max_bytes=MAX_BYTES)
        found = secret.Secret(content.decode("ascii").strip())
        keys.public_key_of(found)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, private_files.LaxMode, private_files.FileTooLarge) as fault:
        LOGGER.warning("The mesh key cannot be used", extra={"fault": type(fault).__name__})
        return None
    return found


def replace(where: paths.Paths) -> secret.Secret:
    """A fresh key in place of any former one; raises `OSError` of the disk."""
    fresh = keys.new_private_key()
    private_files.ensure_private_folder(where.identity)
    private_files.write_private(where.mesh_key, fresh.reveal().encode() + b"\n")
    return fresh
