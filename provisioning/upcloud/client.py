"""UpCloud over HTTP: who we are, lists to their end, and a clear word for what is gone.

Whether and where `/server` cuts its list is not written down; so limit and offset are sent, and
only a page that brings nothing new is the end of a list, never one that is merely short.

Known limit: that costs one call more a list; UpCloud tells no budget, and a 429 is honoured.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final

from provisioning import answers, contract, credentials, outcomes, providers, shaped
from provisioning import client as client_kit
from provisioning.upcloud import errors

ADDRESS: Final = "https://api.upcloud.com"
PAGE: Final = 100
MOST_PAGES: Final = 500


class Client:
    """One account's or sub-account's way to the API."""

    def __init__(self, opening: providers.Opening) -> None:
        self._proof, secret = _proof(opening.credential)
        self._hidden = (secret,)
        self._client = client_kit.Client(
            opening.endpoints.get("", ADDRESS),
            observer=opening.observer,
            clock=opening.clock,
            headers=self._headers,
            read=errors.read,
            table=errors.TABLE,
            limits=opening.limits,
        )

    @property
    def budget(self) -> answers.Budget | None:
        """What was left of the calls, should UpCloud ever say it."""
        return self._client.budget

    async def send(
        self,
        call: contract.ApiCall,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        hide: tuple[str, ...] = (),
    ) -> Any:
        """Makes this call once; gives the answer's JSON, None where it has none."""
        answer = await self._client.send(
            call, path, params=params, body=body, hide=(*self._hidden, *hide)
        )
        return answer.body

    async def find(self, call: contract.ApiCall, path: str, key: str) -> dict[str, Any] | None:
        """The thing at this path; None where UpCloud says clearly that there is none."""
        try:
            return within(call, await self.send(call, path), key)
        except outcomes.Fault as fault:
            if fault.code in errors.GONE:
                return None
            raise

    async def every(
        self, call: contract.ApiCall, path: str, keys: tuple[str, str], *, label: str = ""
    ) -> list[dict[str, Any]]:
        """All of a list, each thing once; an incomplete list is a fault, never a list."""
        found: dict[str, dict[str, Any]] = {}
        for _ in range(MOST_PAGES):
            params: dict[str, Any] = {"limit": PAGE, "offset": len(found)}
            if label:
                params["label"] = label
            body = await self.send(call, path, params=params)
            rows = within(call, body, keys[0]).get(keys[1])
            if not isinstance(rows, list):
                raise answers.unanswered(call.name, f"a success without {keys[1]}")
            with shaped.reading(call.name):
                fresh = {str(row.get("uuid") or row["address"]): row for row in rows}
            if fresh.keys() <= found.keys():
                return list(found.values())
            found = {**found, **fresh}
        raise answers.unanswered(call.name, f"more than {MOST_PAGES} pages")

    async def close(self) -> None:
        """Gives its connections back."""
        await self._client.close()

    async def _headers(self, call: contract.ApiCall) -> Mapping[str, str]:
        del call  # the same for all
        return {"authorization": self._proof}


def within(call: contract.ApiCall, body: Any, key: str) -> dict[str, Any]:
    """What a success holds under this key.

    Raises:
        outcomes.Fault: it does not hold it, so it is no readable answer.
    """
    inside = body.get(key) if isinstance(body, dict) else None
    if not isinstance(inside, dict):
        raise client_kit.out_of_shape(call)
    return inside


def _proof(credential: credentials.Credential) -> tuple[str, str]:
    if isinstance(credential, credentials.UpcloudToken):
        return f"Bearer {credential.token.reveal()}", credential.token.reveal()
    if isinstance(credential, credentials.UpcloudPassword):
        password = credential.password.reveal()
        pair = base64.b64encode(f"{credential.username}:{password}".encode()).decode()
        return f"Basic {pair}", password
    raise providers.Refused("UpCloud is opened with an API token or a sub-account's password.")
