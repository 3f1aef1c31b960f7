"""ARM, Azure's resource manager, as the driver uses it: read one, read all, put, delete, follow.

Bodies go to and fro as plain JSON objects; what they hold is written in `bodies` and read in
`reading`. An address that Azure hands us (a next page, an operation) is followed only where it
leads to the very host that was asked, since our token goes with it.
"""

import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

from provisioning import client, contract, outcomes, providers
from provisioning.azure import calls, errors, places, tokens

ADDRESS: Final = "https://management.azure.com"
MOST_PAGES: Final = 200
_ONLY_NEW: Final = {"if-none-match": "*"}
_READS_LEFT: Final = "x-ms-ratelimit-remaining-subscription-reads"

Body = dict[str, Any]


class Arm:
    """Speaks to one subscription. Close it when done."""

    def __init__(self, opening: providers.Opening, *, tokens_of: tokens.Tokens) -> None:
        self._tokens = tokens_of
        self.reads_left: int | None = None  # of this subscription's budget, as last told
        self._address = opening.endpoints.get("arm", opening.endpoints.get("", ADDRESS)).rstrip("/")
        self._client = client.Client(
            self._address,
            observer=opening.observer,
            clock=opening.clock,
            headers=tokens_of.headers,
            read=errors.read,
            table=errors.TABLE,
            limits=opening.limits,
        )

    async def send(
        self,
        call: contract.ApiCall,
        path: str,
        *,
        version: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        hide: tuple[str, ...] = (),
    ) -> client.Answer:
        """Makes this call once.

        Raises:
            outcomes.Fault: it was no success.
        """
        return await self._sent(
            call, path, params={"api-version": version, **(params or {})}, body=body,
            headers=headers, hide=hide,
        )  # fmt: skip

    async def get(
        self, path: str, *, kind: str, params: Mapping[str, str] | None = None
    ) -> Body | None:
        """The thing at this path; None where Azure says clearly that there is none.

        Raises:
            outcomes.Fault: anything else, a missing right among it: that is no "gone".
        """
        call = calls.GETS[kind]
        try:
            answer = await self.send(call, path, version=places.VERSIONS[kind], params=params)
        except outcomes.Fault as fault:
            if fault.code in errors.GONE:
                return None
            raise
        return _object(call, answer)

    async def put(
        self,
        call: contract.ApiCall,
        path: str,
        *,
        kind: str,
        body: Body,
        only_new: bool,
        hide: tuple[str, ...] = (),
    ) -> client.Answer:
        """Puts it there. `only_new`: refused with `errors.THERE_ALREADY` where something is."""
        answer = await self.send(
            call,
            path,
            version=places.VERSIONS[kind],
            body=body,
            headers=_ONLY_NEW if only_new else None,
            hide=hide,
        )
        _object(call, answer)
        return answer

    async def delete(self, path: str, *, kind: str) -> None:
        """Has it deleted; returns once that is accepted, or where it is gone already."""
        try:
            await self.send(calls.DELETES[kind], path, version=places.VERSIONS[kind])
        except outcomes.Fault as fault:
            if fault.code in errors.GONE:
                return
            raise errors.of_a_delete(fault) from None

    async def pages(
        self,
        call: contract.ApiCall,
        path: str,
        *,
        version: str,
        params: Mapping[str, str] | None = None,
    ) -> list[Body]:
        """All rows of a list, over all its pages.

        Raises:
            outcomes.Fault: a page is missing, so the whole is: half a list is none.
        """
        rows: list[Body] = []
        answer = await self.send(call, path, version=version, params=params)
        for _ in range(MOST_PAGES):
            page = _object(call, answer)
            told = page.get("value")
            if not isinstance(told, list):
                raise client.out_of_shape(call)
            rows += [row for row in told if isinstance(row, dict)]
            link = page.get("nextLink")
            if not link:
                return rows
            following = self.path_of(link)
            if following is None:
                raise client.out_of_shape(call)
            answer = await self._sent(call, following)
        raise client.out_of_shape(call)

    async def all_of(self, place: places.Place, kind: str) -> list[Body]:
        """All of this kind in the resource group."""
        version = places.VERSIONS[kind]
        return await self.pages(calls.GETS[kind], place.all_of(kind), version=version)

    async def operation(self, path: str) -> Body | None:
        """What an operation says of itself; None where Azure has forgotten it."""
        try:
            answer = await self._sent(calls.OPERATION, path)
        except outcomes.Fault as fault:
            if fault.code in errors.GONE:
                return None
            raise
        return answer.body if isinstance(answer.body, dict) else {}

    def prove_anew(self) -> None:
        """Has the next call prove who we are, whatever token is held."""
        self._tokens.forget()

    def path_of(self, link: Any) -> str | None:
        """Path and query of an address on the host that we ask; None for any other."""
        if not isinstance(link, str):
            return None
        here, there = urllib.parse.urlsplit(self._address), urllib.parse.urlsplit(link)
        if (there.scheme, there.netloc) != (here.scheme, here.netloc) or "@" in there.netloc:
            return None
        return f"{there.path}?{there.query}" if there.query else there.path

    async def close(self) -> None:
        """Gives connections back."""
        await self._client.close()
        await self._tokens.close()

    async def _sent(
        self, call: contract.ApiCall, path: str, *, hide: tuple[str, ...] = (), **options: Any
    ) -> client.Answer:
        await self._tokens.headers(call)  # so that the token to hide is the one that is sent
        hide = (*hide, *self._tokens.secrets())
        try:
            answer = await self._client.send(call, path, hide=hide, **options)
        except outcomes.Fault as fault:
            if fault.outcome is outcomes.Outcome.AUTH_LOST:
                self._tokens.forget()
            raise
        left = answer.headers.get(_READS_LEFT, "")
        if left.isdecimal() and len(left) < 9:
            self.reads_left = int(left)
        return answer


def _object(call: contract.ApiCall, answer: client.Answer) -> Body:
    if not isinstance(answer.body, dict):
        raise client.out_of_shape(call)
    return answer.body
