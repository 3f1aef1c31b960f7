"""Where a worker keeps what: every file on the node is named here and nowhere else.

The folder is 0700 and every file 0600. `identity/` holds the key and the certificate, beside them
what is to replace them and what they replaced; `trust.json` the last accepted trust set;
`join.json` how the Platform was authenticated; `agent.json` what the Agent needs to start, and is
written last: where it stands, the machine has joined. `session.json` is what the running Agent
tells of its session; nothing is decided by it. `orders.json` is what was ordered and what became
of it. `staged/` holds the archive of a release while it is fetched and handed on.
"""

import dataclasses
import os
import pathlib
import stat
from collections.abc import Mapping

from worker_agent.settings import failures

SYSTEM_FOLDER = pathlib.Path("/var/lib/enlist/worker")
MOST_FORMERS = 3  # with certificates of 90 days, a Platform put back from half a year ago knows one
_HINT = "Name a folder with --data-dir."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The files of one worker."""

    folder: pathlib.Path

    @property
    def identity(self) -> pathlib.Path:
        """The folder of the machine's own key."""
        return self.folder / "identity"

    @property
    def key(self) -> pathlib.Path:
        """The private key, PKCS 8 PEM; replaced only by one that the Platform has welcomed."""
        return self.identity / "key.pem"

    @property
    def certificate(self) -> pathlib.Path:
        """The self-signed certificate of that key."""
        return self.identity / "certificate.pem"

    @property
    def next_key(self) -> pathlib.Path:
        """The key that is to replace the present one; most renewals keep the key and have none."""
        return self.identity / "next-key.pem"

    @property
    def next_certificate(self) -> pathlib.Path:
        """The certificate that is to replace the present one."""
        return self.identity / "next-certificate.pem"

    @property
    def formers(self) -> tuple[pathlib.Path, ...]:
        """Replaced keys with their certificates, a pair a file, the latest first."""
        return tuple(self.identity / f"former-{one}.pem" for one in range(1, MOST_FORMERS + 1))

    @property
    def trust(self) -> pathlib.Path:
        """The last accepted trust set."""
        return self.folder / "trust.json"

    @property
    def join(self) -> pathlib.Path:
        """How the Platform was authenticated at the join."""
        return self.folder / "join.json"

    @property
    def agent(self) -> pathlib.Path:
        """What the Agent starts from; the last file a join writes."""
        return self.folder / "agent.json"

    @property
    def session(self) -> pathlib.Path:
        """What the running Agent tells of its session, for `enlist worker status`."""
        return self.folder / "session.json"

    @property
    def mesh_key(self) -> pathlib.Path:
        """The WireGuard key, as `wg genkey` writes one; replaced whenever it cannot be used."""
        return self.identity / "mesh.key"

    @property
    def mesh(self) -> pathlib.Path:
        """The place in the mesh, where the Platform gave one."""
        return self.folder / "mesh.json"

    @property
    def orders(self) -> pathlib.Path:
        """The last order's number, and the orders at hand."""
        return self.folder / "orders.json"

    @property
    def staged(self) -> pathlib.Path:
        """The folder of the archive of a release that is on its way to the root helper."""
        return self.folder / "staged"

    @property
    def pending_join(self) -> pathlib.Path:
        """What a join was asked that is not over; holds its token."""
        return self.folder / "pending-join.json"

    @property
    def lock(self) -> pathlib.Path:
        """Held by whoever changes files here."""
        return self.folder / "lock"

    @property
    def agent_lock(self) -> pathlib.Path:
        """Held by the running Agent, so that one folder never runs two."""
        return self.folder / "agent.lock"

    def private_files(self) -> tuple[pathlib.Path, ...]:
        """The files of every joined machine."""
        return (self.key, self.certificate, self.trust, self.join, self.agent)

    def later_files(self) -> tuple[pathlib.Path, ...]:
        """The files that come with a session, a renewal, a mesh or a join that goes on."""
        return (
            *(self.next_key, self.next_certificate, *self.formers),
            *(self.session, self.orders, self.mesh, self.mesh_key, self.pending_join),
        )

    def entries(self) -> tuple[pathlib.Path, ...]:
        """What may stand in the folder itself."""
        return (
            *(self.identity, self.trust, self.join, self.agent),
            *(self.session, self.orders, self.mesh, self.staged, self.pending_join),
            *(self.lock, self.agent_lock),
        )


def default_folder(environment: Mapping[str, str], *, uid: int) -> pathlib.Path:
    """The data directory without `--data-dir`: the system's for root, the user's own otherwise."""
    if uid == 0:
        return SYSTEM_FOLDER
    state = environment.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):  # the XDG specification says to ignore a relative path
        state = f"{environment.get('HOME', '/')}/.local/state"
    return pathlib.Path(state) / "enlist" / "worker"


def resolve(
    given: str | os.PathLike[str] | None, *, environment: Mapping[str, str], uid: int
) -> Paths:
    """The paths for a command, from its flag, else from `ENLIST_DATA_DIR`, else the default.

    Raises `Misuse` for a path at which no folder can be.
    """
    chosen = given or environment.get("ENLIST_DATA_DIR") or None
    folder = pathlib.Path(chosen) if chosen else default_folder(environment, uid=uid)
    where = Paths(folder=folder.expanduser().absolute())
    _require_folder(where.folder)
    return where


def _require_folder(folder: pathlib.Path) -> None:
    """One that is not there yet is fine, and so is one that only another account may see."""
    try:
        is_folder = stat.S_ISDIR(folder.stat().st_mode)
    except (FileNotFoundError, PermissionError):
        return
    except OSError as error:
        raise failures.Misuse(
            f"{folder} cannot be a data directory: {error.strerror}.", hint=_HINT
        ) from error
    if not is_folder:
        raise failures.Misuse(f"{folder} is no folder, so no data directory.", hint=_HINT)
