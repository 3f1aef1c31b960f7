"""Entra's token door in small: client secrets and assertions in, short-lived tokens out.

An assertion is believed where its signature fits the key that was registered for its issuer and
subject and audience are the registered ones, by this fake's own clock.
"""

import dataclasses
import datetime
import itertools
import re
import urllib.parse
from collections.abc import Callable
from typing import Any, Final

import jwt

from tests.support.clouds import server

TENANT: Final = "72f988bf-0000-4000-8000-00000000ab1e"
CLIENT: Final = "0f0e0d0c-0000-4000-8000-00000000c11e"
SECRET: Final = "az-secret-~b7Q.f00dfacef00dface"
AUDIENCE: Final = "api://AzureADTokenExchange"
PATH: Final = re.compile(r"/[\w.-]+/oauth2/v2\.0/token")
LIFE_SECONDS: Final = 3599
_BEARER: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_SCOPE: Final = "https://management.azure.com/.default"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Federated:
    """One federated credential of the app registration."""

    issuer: str
    subject: str
    key: Any  # the issuer's public key


class Entra:
    """Gives tokens and knows them again."""

    def __init__(self, now: Callable[[], datetime.datetime]) -> None:
        self._now = now
        self._count = itertools.count(1)
        self._until: dict[str, datetime.datetime] = {}
        self.federated: list[Federated] = []
        self.is_secret_expired = False
        self.assertions: list[str] = []

    def answer(self, asked: server.Asked) -> server.Reply:
        """A token, or why not."""
        form = {
            name: values[0] for name, values in urllib.parse.parse_qs(asked.body.decode()).items()
        }
        if asked.path.split("/")[1] != TENANT:
            return _refused("invalid_request", "AADSTS90002: Tenant not found.")
        if form.get("client_id") != CLIENT:
            return _refused("unauthorized_client", "AADSTS700016: Application was not found.")
        if form.get("grant_type") != "client_credentials" or form.get("scope") != _SCOPE:
            return _refused("invalid_request", "AADSTS900144: The request body lacks a parameter.")
        if "client_secret" in form:  # it wins where both are given
            refusal = self._of_secret(form["client_secret"])
        elif form.get("client_assertion_type") == _BEARER:
            refusal = self._of_assertion(form.get("client_assertion", ""))
        else:
            refusal = _refused("invalid_client", "AADSTS7000216: A credential is required.")
        if refusal is not None:
            return refusal
        token = f"eyJ-arm-token-{next(self._count):06d}-{'x' * 24}"
        self._until[token] = self._now() + datetime.timedelta(seconds=LIFE_SECONDS)
        document = {"token_type": "Bearer", "expires_in": LIFE_SECONDS, "access_token": token}
        return server.Reply(document=document)

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

    def _of_secret(self, secret: str) -> server.Reply | None:
        if secret != SECRET:
            return _refused("invalid_client", "AADSTS7000215: Invalid client secret provided.")
        if self.is_secret_expired:
            return _refused("invalid_client", "AADSTS7000222: The client secret keys are expired.")
        return None

    def _of_assertion(self, assertion: str) -> server.Reply | None:
        self.assertions.append(assertion)
        for one in self.federated:
            try:
                told = jwt.decode(
                    assertion,
                    one.key,
                    algorithms=["RS256"],
                    audience=AUDIENCE,
                    issuer=one.issuer,
                    options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
                )
            except jwt.InvalidTokenError:
                continue
            if told.get("sub") != one.subject:
                continue
            now = self._now().timestamp()
            if not told.get("nbf", told["iat"]) - 300 <= now <= told["exp"] + 300:
                words = "AADSTS700024: Client assertion is not within its valid time range."
                return _refused("invalid_client", words)
            return None
        words = "AADSTS700213: No matching federated identity record found for presented assertion."
        return _refused("invalid_client", words)


def _refused(error: str, words: str) -> server.Reply:
    number = int(re.findall(r"\d+", words)[0])
    document = {"error": error, "error_description": words, "error_codes": [number]}
    return server.Reply(status=400 if error == "invalid_request" else 401, document=document)
