"""Access tokens of Entra, by whichever proof the connection has, kept for most of their life.

The proof is a client secret, or an assertion made or read anew for each exchange: of our own
issuer, or from the file that somebody else keeps fresh. Nothing of an answer but the token and its
life is used, and neither is ever written down.

Known limit: a token that Azure revokes early is only found out by the call that it is refused for;
that call then says so, and the next one fetches anew.
"""

import asyncio
import datetime
import pathlib
import re
from collections.abc import Mapping
from typing import Any, Final

from provisioning import answers, client, contract, credentials, federation, outcomes, providers
from provisioning.azure import calls
from runtime_kit import secret as secret_kit

ADDRESS: Final = "https://login.microsoftonline.com"
_SCOPE: Final = "https://management.azure.com/.default"
_BEARER: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_HELD: Final = "token"  # in the memory that openings share
_FRESH_SHARE: Final = 0.8  # of a token's life; then a new one is fetched
_LONGEST: Final = datetime.timedelta(hours=24)
_TENANT: Final = re.compile(r"[A-Za-z0-9.-]{1,100}")
_CODE: Final = re.compile(r"\bAADSTS(\d{4,8})\b")

_OUTCOME = outcomes.Outcome
_LOST: Final = answers.Verdict(outcome=_OUTCOME.AUTH_LOST, topic=outcomes.Topic.AUTH)
_TABLE: Final[Mapping[str, answers.Verdict]] = {
    "AADSTS90033": answers.Verdict(  # the service is away for a moment
        outcome=_OUTCOME.NOT_DONE_RETRYABLE, topic=outcomes.Topic.NETWORK
    ),
    **dict.fromkeys(("invalid_client", "invalid_request", "unauthorized_client"), _LOST),
    **dict.fromkeys(("invalid_grant", "invalid_scope"), _LOST),
}

Proof = credentials.AzureSecret | credentials.AzureFederated | credentials.AzureTokenFile


class Tokens:
    """Hands out a token that is good for a while yet. Safe for many callers at once."""

    def __init__(self, opening: providers.Opening, *, proof: Proof) -> None:
        if not _TENANT.fullmatch(proof.tenant_id):
            raise providers.Refused(f"{proof.tenant_id!r} is no tenant's id or domain.")
        self._proof = proof
        self._clock = opening.clock
        self._assertion = opening.assertion
        self._folder = opening.token_folder
        self._lock = asyncio.Lock()
        self._memory = opening.memory
        self._client = client.Client(
            opening.endpoints.get("login", opening.endpoints.get("", ADDRESS)),
            observer=opening.observer,
            clock=opening.clock,
            headers=_no_headers,
            read=_read,
            table=_Told(_TABLE),
            is_time_bound=True,
            limits=opening.limits,
        )

    async def headers(self, call: contract.ApiCall) -> Mapping[str, str]:
        """The header of authority for this call.

        Raises:
            outcomes.Fault: Entra refuses the proof, or cannot be reached.
        """
        del call
        async with self._lock:
            token, until = self._memory.get(_HELD, (None, None))
            if token is None or self._clock.now() >= until:
                token = await self._fetch()
            return {"authorization": f"Bearer {token.reveal()}"}

    def secrets(self) -> tuple[str, ...]:
        """What may come back in no sentence."""
        token, _ = self._memory.get(_HELD, (None, None))
        held = [] if token is None else [token.reveal()]
        if isinstance(self._proof, credentials.AzureSecret):
            held.append(self._proof.client_secret.reveal())
        return tuple(held)

    def forget(self) -> None:
        """Has the next call fetch a new one: this one was refused."""
        self._memory.pop(_HELD, None)

    async def close(self) -> None:
        """Gives its connections back."""
        await self._client.close()

    async def _fetch(self) -> secret_kit.Secret:
        proof = await asyncio.to_thread(self._proven)  # it may read a file
        answer = await self._client.send(
            calls.TOKEN,
            f"/{self._proof.tenant_id}/oauth2/v2.0/token",
            form={
                "grant_type": "client_credentials",
                "client_id": self._proof.client_id,
                "scope": _SCOPE,
                **proof,
            },
            hide=tuple(proof.values()),
        )
        told = answer.body if isinstance(answer.body, dict) else {}
        token, seconds = told.get("access_token"), _seconds(told.get("expires_in"))
        if not isinstance(token, str) or not token.isascii() or seconds is None:
            raise client.out_of_shape(calls.TOKEN)
        held = secret_kit.Secret(token)
        self._memory[_HELD] = held, self._clock.now() + seconds * _FRESH_SHARE
        return held

    def _proven(self) -> dict[str, str]:
        if isinstance(self._proof, credentials.AzureSecret):
            return {"client_secret": self._proof.client_secret.reveal()}
        if isinstance(self._proof, credentials.AzureTokenFile):
            source: providers.Assertion = federation.FileAssertion(
                pathlib.Path(self._proof.federated_token_file), folder=self._folder
            )
        else:
            source = federation.needed(self._assertion)
        return {
            "client_assertion_type": _BEARER,
            "client_assertion": source(federation.AZURE_AUDIENCE),
        }


class _Told(Mapping[str, answers.Verdict]):
    """The table of codes; every AADSTS number that is not in it is a refused proof."""

    def __init__(self, table: Mapping[str, answers.Verdict]) -> None:
        self._table = table

    def __getitem__(self, code: str) -> answers.Verdict:
        if code not in self._table and _CODE.fullmatch(code):
            return _LOST
        return self._table[code]

    def __contains__(self, code: object) -> bool:
        return code in self._table or (isinstance(code, str) and _CODE.fullmatch(code) is not None)

    def __iter__(self) -> Any:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


async def _no_headers(call: contract.ApiCall) -> Mapping[str, str]:
    del call
    return {}


def _read(body: Any) -> tuple[str, str]:
    """The AADSTS number where the description has one, else OAuth's own word."""
    if not isinstance(body, dict):
        return "", ""
    error, said = body.get("error"), body.get("error_description")
    words = said if isinstance(said, str) else ""
    found = _CODE.search(words)
    if found is not None:
        return found.group(0), words
    return (error if isinstance(error, str) else ""), words


def _seconds(told: Any) -> datetime.timedelta | None:
    try:
        life = datetime.timedelta(seconds=float(told))
    except (TypeError, ValueError, OverflowError):
        return None
    return min(life, _LONGEST) if life > datetime.timedelta() else None
