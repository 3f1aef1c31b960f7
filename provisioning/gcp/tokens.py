"""Access tokens of Google, by a service account's key or by our own assertions, kept for a while.

The exchange is google-auth's; what it may call is ours: every address is fixed here, no field of a
pasted document is ever one, redirects are not followed, and an answer that is no success ends the
exchange at once (google-auth would repeat it).

Known limit: an exchange runs in a thread and cannot be cancelled, only its time limit ends it.
"""

import asyncio
import datetime
import re
from collections.abc import Mapping
from typing import Any, Final

import google.auth.crypt
import google.auth.exceptions
import google.auth.identity_pool
import google.auth.transport
import google.oauth2.service_account
import httpx

from provisioning import answers, client, contract, credentials, federation, outcomes, providers
from provisioning.gcp import calls
from runtime_kit import clock as clock_kit
from runtime_kit import secret as secret_kit

OAUTH: Final = "https://oauth2.googleapis.com"
STS: Final = "https://sts.googleapis.com"
IAM: Final = "https://iamcredentials.googleapis.com"
_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
_JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
_EMAIL: Final = re.compile(r"[a-z0-9.-]+@[a-z0-9.-]+")
_HELD: Final = "token"  # in the memory that openings share
_FRESH_SHARE: Final = 0.8
_MOST_BYTES: Final = 65_536

_LOST: Final = answers.Verdict(outcome=outcomes.Outcome.AUTH_LOST, topic=outcomes.Topic.AUTH)
_TABLE: Final[Mapping[str, answers.Verdict]] = dict.fromkeys(
    (
        "invalid_grant",
        "invalid_client",
        "invalid_request",
        "invalid_target",
        "invalid_scope",
        "unauthorized_client",
        "access_denied",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "NOT_FOUND",
    ),
    _LOST,
)

# google-auth's own classes carry no types
_KEYED: Final[Any] = google.oauth2.service_account.Credentials
_POOLED: Final[Any] = google.auth.identity_pool.Credentials
_SIGNER: Final[Any] = google.auth.crypt.RSASigner

Proof = credentials.GcpKey | credentials.GcpFederated


class Tokens:
    """Hands out a token that is good for a while yet. Safe for many callers at once."""

    def __init__(self, opening: providers.Opening, *, proof: Proof) -> None:
        self._opening = opening
        self._source = _source(opening, proof=proof)
        self._key = proof.private_key if isinstance(proof, credentials.GcpKey) else None
        self._lock = asyncio.Lock()
        self._memory = opening.memory

    async def headers(self, call: contract.ApiCall) -> Mapping[str, str]:
        """The header of authority for this call.

        Raises:
            outcomes.Fault: Google refuses the proof, or cannot be reached.
        """
        del call
        async with self._lock:
            token, until = self._memory.get(_HELD, (None, None))
            if token is None or self._opening.clock.now() >= until:
                token = await self._fetch()
            return {"authorization": f"Bearer {token.reveal()}"}

    def secrets(self) -> tuple[str, ...]:
        """What may come back in no sentence."""
        token, _ = self._memory.get(_HELD, (None, None))
        held = [] if token is None else [token.reveal()]
        if self._key is not None:
            held.append(self._key.reveal())
        return tuple(held)

    def forget(self) -> None:
        """Has the next call fetch a new one: this one was refused."""
        self._memory.pop(_HELD, None)

    async def _fetch(self) -> secret_kit.Secret:
        await self._opening.observer(calls.TOKEN)
        try:
            token, life = await asyncio.to_thread(self._exchange)
        except _Answered as answer:
            raise answers.fault_of(
                answer.refusal,
                what=calls.TOKEN.name,
                table=_TABLE,
                clock=self._opening.clock,
                is_time_bound=True,
            ) from None
        except _Unreached as fault:
            raise answers.unreachable(calls.TOKEN.name, str(fault)) from None
        except google.auth.exceptions.GoogleAuthError:  # its words may quote the answer
            raise client.out_of_shape(calls.TOKEN) from None
        held = secret_kit.Secret(token)
        self._memory[_HELD] = held, self._opening.clock.now() + life * _FRESH_SHARE
        return held

    def _exchange(self) -> tuple[str, datetime.timedelta]:
        limits = self._opening.limits
        with httpx.Client(
            timeout=httpx.Timeout(limits.read, connect=limits.connect),
            follow_redirects=False,
            trust_env=False,
        ) as http:
            refresh: Any = self._source.refresh
            refresh(_Transport(http))
        # google-auth reads the machine's own clock, and writes in UTC without a zone
        expiry = self._source.expiry
        now = clock_kit.SystemClock().now().replace(tzinfo=None)
        life = expiry - now if expiry is not None else datetime.timedelta()
        return str(self._source.token), max(life, datetime.timedelta())


class _Answered(Exception):
    """The exchange was answered with something else than a token."""

    def __init__(self, refusal: answers.Refusal) -> None:
        super().__init__(refusal.status)
        self.refusal = refusal


class _Unreached(Exception):
    """There was no answer."""


class _Reply(google.auth.transport.Response):
    """A success in the shape that google-auth reads."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    @property
    def status(self) -> int:
        """Its status."""
        return self._response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""
        return self._response.headers

    @property
    def data(self) -> bytes:
        """Its body."""
        return self._response.content


class _Transport(google.auth.transport.Request):
    """How google-auth makes its calls: once, by our client, within our limits."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> google.auth.transport.Response:
        """One exchange; raises for anything but a success."""
        del timeout
        try:
            response = self._http.request(method, url, content=body, headers=headers)
        except httpx.HTTPError as fault:
            raise _Unreached(type(fault).__name__) from None
        if response.is_success and len(response.content) <= _MOST_BYTES:
            return _Reply(response)
        raise _Answered(_refusal(response))


def _refusal(response: httpx.Response) -> answers.Refusal:
    try:
        told: Any = answers.parsed(response.content[:_MOST_BYTES])
    except ValueError:
        told = None
    error = told.get("error") if isinstance(told, dict) else None
    if isinstance(error, dict):  # iamcredentials writes like other services of Google
        code, message = error.get("status"), error.get("message")
    else:
        code, message = error, told.get("error_description") if isinstance(told, dict) else ""
    return answers.Refusal(
        status=response.status_code,
        code=code if isinstance(code, str) else "",
        message=message if isinstance(message, str) else "",
        headers={name.lower(): value for name, value in response.headers.items()},
        is_readable=isinstance(told, dict),
    )


def _source(opening: providers.Opening, *, proof: Proof) -> Any:
    """The credential of google-auth, built of fields; raises `providers.Refused`."""
    addresses = opening.endpoints
    usual = addresses.get("")
    if isinstance(proof, credentials.GcpKey):
        try:
            signer = _SIGNER.from_string(proof.private_key.reveal(), proof.private_key_id)
        except ValueError:
            raise providers.Refused("The private key is not one that can be read.") from None
        oauth = addresses.get("oauth", usual or OAUTH)
        return _KEYED(
            signer,
            proof.client_email,
            f"{oauth}/token",
            scopes=list(_SCOPES),
            project_id=proof.project_id,
        )
    try:
        audience = federation.gcp_audience(
            project_number=proof.project_number, pool=proof.pool_id, provider=proof.provider_id
        )
    except ValueError as fault:
        raise providers.Refused(str(fault)) from None
    if proof.service_account and not _EMAIL.fullmatch(proof.service_account):
        raise providers.Refused(f"{proof.service_account!r} is no service account's address.")
    iam = addresses.get("iamcredentials", usual or IAM)
    return _POOLED(
        audience=audience,
        subject_token_type=_JWT,
        token_url=f"{addresses.get('sts', usual or STS)}/v1/token",
        subject_token_supplier=_Supplier(opening, audience=audience),
        service_account_impersonation_url=(
            f"{iam}/v1/projects/-/serviceAccounts/{proof.service_account}:generateAccessToken"
            if proof.service_account
            else None
        ),
        scopes=list(_SCOPES),
    )


class _Supplier(google.auth.identity_pool.SubjectTokenSupplier):
    """Our assertions, asked for when they are needed and not before."""

    def __init__(self, opening: providers.Opening, *, audience: str) -> None:
        self._opening = opening
        self._audience = audience

    def get_subject_token(self, context: Any, request: Any) -> str:
        """A fresh assertion for the pool."""
        assertion = federation.needed(self._opening.assertion)
        tokens = federation.SubjectTokens(assertion, audience=self._audience)
        return tokens.get_subject_token(context, request)
