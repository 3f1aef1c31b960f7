"""Proving who we are without a stored secret: assertions and whom they are made for.

An assertion is a signed sentence of a few minutes' life, "the bearer is connection X", addressed to
one audience. `providers.Assertion` makes one of our own issuer; `FileAssertion` hands on what
somebody else writes into a file. Each provider has an audience of its own, so that an assertion
taken at one is refused by every other.

Known limit: nothing is judged here. Who believes an assertion verifies it; that it is well formed
is looked at only where it comes from a file.
"""

import errno
import os
import pathlib
import re
import stat
from typing import Any, Final

from provisioning import outcomes, providers

AWS_AUDIENCE: Final = "sts.amazonaws.com"
AZURE_AUDIENCE: Final = "api://AzureADTokenExchange"
MOST_ASSERTION_BYTES: Final = 16_384
_JWT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_GCP_PART: Final = re.compile(r"[a-z0-9-]{1,63}")


def gcp_audience(*, project_number: str, pool: str, provider: str) -> str:
    """The audience of a workload identity pool's provider.

    It goes into an address, so its parts are looked at. Raises `ValueError`.
    """
    for part in (project_number, pool, provider):
        if not _GCP_PART.fullmatch(part):
            raise ValueError(
                f"{part!r} cannot be part of a workload identity provider's name: "
                "lower-case letters, digits and dashes, at most 63."
            )
    return (
        f"//iam.googleapis.com/projects/{project_number}/locations/global"
        f"/workloadIdentityPools/{pool}/providers/{provider}"
    )


class FileAssertion:
    """The JWT that somebody else keeps fresh in a file, read anew for every exchange.

    Only below `folder`, which the operator names: a connection's path is a person's word, and
    neither shows which other files exist nor has a token from elsewhere sent away.
    """

    def __init__(self, path: pathlib.Path, *, folder: pathlib.Path | None) -> None:
        self._path = path
        self._folder = folder

    def __call__(self, audience: str, /) -> str:
        """What the file holds now; the audience is whoever wrote it's to choose.

        Raises:
            Fault: `AUTH_LOST`: it is not below the folder, there is no such file, it is no file, it
                is too large, or holds no JWT.
        """
        del audience
        if self._folder is None:
            raise self._refused(
                "[cloud] token_folder names no folder below which such files may be"
            )
        try:
            path = (
                self._path.resolve()
            )  # whoever keeps it fresh may use links, to within the folder
            if not path.is_relative_to(self._folder.resolve()):
                raise self._refused(f"it is not below {self._folder} ([cloud] token_folder)")
            raw = _read(path)
        except (OSError, RuntimeError) as fault:  # links in a circle are a RuntimeError
            raise self._refused(getattr(fault, "strerror", "") or "it cannot be read") from fault
        text = raw.decode("ascii", errors="replace").strip()
        if len(raw) > MOST_ASSERTION_BYTES or not _JWT.fullmatch(text):
            raise self._refused("it holds no JSON web token")
        return text

    def _refused(self, why: str) -> outcomes.Fault:
        return outcomes.Fault(
            f"The federated token in {self._path} cannot be used: {why}. "
            "Have whoever issues it write it anew; it is read again at the next try.",
            outcome=outcomes.Outcome.AUTH_LOST,
            topic=outcomes.Topic.AUTH,
            code="federated-token-file",
        )


def _read(path: pathlib.Path) -> bytes:
    """The beginning of a regular file, without waiting for a writer of what is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as opened:
            return opened.read(MOST_ASSERTION_BYTES + 1)
    finally:
        os.close(descriptor)


class SubjectTokens:
    """Our assertions in the shape that google-auth asks a supplier of subject tokens for."""

    def __init__(self, assertion: providers.Assertion, *, audience: str) -> None:
        self._assertion = assertion
        self._audience = audience

    def get_subject_token(self, context: Any, request: Any) -> str:
        """A fresh assertion for the pool; what google-auth hands over is not needed."""
        del context, request
        return self._assertion(self._audience)


def needed(assertion: providers.Assertion | None) -> providers.Assertion:
    """The supplier; raises `Fault` where there is none, saying what has to be set."""
    if assertion is None:
        raise outcomes.Fault(
            "This credential needs assertions of our own issuer, which has no address yet. "
            "Set [cloud] issuer_url, then publish it: enlist cloud issuer export DIR",
            outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
            topic=outcomes.Topic.AUTH,
            code="no-issuer",
        )
    return assertion
