"""Google's token doors in small: keys of service accounts, assertions for a pool, impersonation.

A signature is judged by the machine's own clock, moved by what the script says that it is off,
since google-auth reads that clock and no other.
"""

import dataclasses
import datetime
import functools
import itertools
import json
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.clouds import server

PROJECT: Final = "enlist-c10d"
EMAIL: Final = f"enlist@{PROJECT}.iam.gserviceaccount.com"
KEY_ID: Final = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
NUMBER: Final = "123456789012"
AUDIENCE: Final = (
    f"//iam.googleapis.com/projects/{NUMBER}/locations/global"
    "/workloadIdentityPools/enlist/providers/platform"
)
LIFE_SECONDS: Final = 3599
_SKEW_SECONDS: Final = 300
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@functools.cache
def key() -> rsa.RSAPrivateKey:
    """The service account's key, one for all tests."""
    return rsa.generate_private_key(public_exponent=65_537, key_size=2048)


@functools.cache
def private_key() -> str:
    """It as Google hands it out."""
    return (
        key()
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode()
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Federated:
    """Who is believed by the pool."""

    issuer: str
    subject: str
    key: Any


class OAuth:
    """Gives tokens and knows them again."""

    def __init__(self, now: Callable[[], datetime.datetime], off: Callable[[], float]) -> None:
        self._now = now
        self._off = off
        self._count = itertools.count(1)
        self._until: dict[str, datetime.datetime] = {}
        self.federated: list[Federated] = []
        self.is_key_deleted = False
        self.assertions: list[str] = []

    def name_of(self, asked: server.Asked) -> str:
        """The call's name; "" where the path is none of these doors."""
        is_door = asked.path in {"/token", "/v1/token"} or asked.path.endswith(
            ":generateAccessToken"
        )
        return f"{asked.method} oauth2.token" if is_door else ""

    def answer(self, asked: server.Asked) -> server.Reply:
        """A token, or why not."""
        if asked.path.endswith(":generateAccessToken"):
            return self._impersonated(asked)
        form = {
            name: values[0] for name, values in urllib.parse.parse_qs(asked.body.decode()).items()
        }
        if asked.path == "/token" and form.get("grant_type") == _BEARER:
            return self._of_key(form.get("assertion", ""))
        if asked.path == "/v1/token" and form.get("grant_type") == _EXCHANGE:
            return self._of_pool(form)
        return _refused("invalid_request", "The grant type is not known.")

    def knows(self, header: str) -> bool:
        """Whether this header carries a token of ours that is not over."""
        until = self._until.get(header.removeprefix("Bearer "))
        return until is not None and self._now() < until

    def revoke(self) -> None:
        """Ends all tokens that were given."""
        self._until.clear()

    @property
    def given(self) -> int:
        """How many tokens were given."""
        return len(self._until)

    def _of_key(self, assertion: str) -> server.Reply:
        if self.is_key_deleted:
            return _refused("invalid_grant", "Invalid JWT Signature.")
        try:
            told = self._decoded(assertion, key().public_key(), audience=None)
        except jwt.InvalidTokenError:
            return _refused("invalid_grant", "Invalid JWT Signature.")
        if told.get("iss") != EMAIL or not self._is_timely(told):
            words = (
                "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable "
                "timeframe. Check your iat and exp values in the JWT claim."
            )
            return _refused("invalid_grant", words)
        return server.Reply(document={"token_type": "Bearer", **self._token()})

    def _of_pool(self, form: dict[str, str]) -> server.Reply:
        assertion = form.get("subject_token", "")
        self.assertions.append(assertion)
        if form.get("audience") != AUDIENCE:
            return _refused("invalid_target", "The target service indicated is invalid.")
        for one in self.federated:
            try:
                told = self._decoded(assertion, one.key, audience=AUDIENCE)
            except jwt.InvalidTokenError:
                continue
            if (told.get("iss"), told.get("sub")) == (one.issuer, one.subject):
                if not self._is_timely(told):
                    return _refused("invalid_grant", "ID Token is stale to sign-in.")
                kind = "urn:ietf:params:oauth:token-type:access_token"
                more = {"token_type": "Bearer", "issued_token_type": kind}
                return server.Reply(document={**more, **self._token()})
        return _refused("invalid_grant", "The issuer or subject is not accepted by the pool.")

    def _impersonated(self, asked: server.Asked) -> server.Reply:
        if not self.knows(asked.headers.get("authorization", "")):
            status = {"code": 401, "message": "No credential.", "status": "UNAUTHENTICATED"}
            return server.Reply(status=401, document={"error": status})
        if EMAIL not in asked.path:
            words = "Permission 'iam.serviceAccounts.getAccessToken' denied."
            status = {"code": 403, "message": words, "status": "PERMISSION_DENIED"}
            return server.Reply(status=403, document={"error": status})
        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=LIFE_SECONDS)
        token = self._token()["access_token"]
        document = {"accessToken": token, "expireTime": until.strftime("%Y-%m-%dT%H:%M:%SZ")}
        return server.Reply(document=document)

    def _token(self) -> dict[str, Any]:
        token = f"ya29.gcp-token-{next(self._count):06d}-{'y' * 24}"
        self._until[token] = self._now() + datetime.timedelta(seconds=LIFE_SECONDS)
        return {"access_token": token, "expires_in": LIFE_SECONDS}

    def _decoded(self, assertion: str, public: Any, *, audience: str | None) -> dict[str, Any]:
        options: Any = {
            "verify_exp": False,
            "verify_nbf": False,
            "verify_iat": False,
            "verify_aud": audience is not None,
        }
        return jwt.decode(
            assertion, public, algorithms=["RS256"], audience=audience, options=options
        )

    def _is_timely(self, told: dict[str, Any]) -> bool:
        here = time.time() + self._off()
        ours = self._now().timestamp()  # our own assertions are made by the test's clock
        return any(
            told["iat"] - _SKEW_SECONDS <= now <= told["exp"] + _SKEW_SECONDS
            for now in ((here, ours) if told.get("iss") != EMAIL else (here,))
        )


def _refused(error: str, words: str) -> server.Reply:
    return server.Reply(status=400, document={"error": error, "error_description": words})


def document() -> str:
    """The pasted key of a service account, as Google's console hands it out, poisoned: nothing of
    it but the fields that are needed may be used.
    """
    return json.dumps(
        {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": KEY_ID,
            "private_key": private_key(),
            "client_email": EMAIL,
            "client_id": "104857600000000000000",
            "auth_uri": "http://127.0.0.1:9/auth",
            "token_uri": "http://127.0.0.1:9/token",
            "auth_provider_x509_cert_url": "http://127.0.0.1:9/certs",
            "universe_domain": "evil.example",
        }
    )
