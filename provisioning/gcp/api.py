"""Google's REST interfaces as the driver uses them: read one, read all, change, follow.

Known limit: what changes something is accepted as an operation; whether it came to anything is read
from that operation, or from the thing itself.
"""

from collections.abc import Mapping
from typing import Any, Final

from provisioning import client, contract, outcomes, providers
from provisioning.gcp import calls, errors, tokens

COMPUTE: Final = "https://compute.googleapis.com"
RESOURCES: Final = "https://cloudresourcemanager.googleapis.com"
SERVICES: Final = "https://serviceusage.googleapis.com"
MOST_PAGES: Final = 200
_PAGE: Final = 500
_EMPTY: Final = "NO_RESULTS_ON_PAGE"

Body = dict[str, Any]


class Aggregated:
    """The rows of a list over all zones. `is_complete` is false where a zone gave none."""

    def __init__(self) -> None:
        self.rows: list[Body] = []
        self.is_complete = True

    def take(self, page: Mapping[str, Any], *, kind: str) -> None:
        """Adds a page."""
        items = page.get("items")
        if not isinstance(items, dict):  # an empty list names its zones all the same
            self.is_complete = False
            return
        for scope in items.values():
            self.rows += [one for one in scope.get(kind, ()) if isinstance(one, dict)]
            self._heed(scope.get("warning"))
        self._heed(page.get("warning"))
        if page.get("unreachables"):
            self.is_complete = False

    def _heed(self, warning: Any) -> None:
        if isinstance(warning, dict) and warning.get("code") != _EMPTY:
            self.is_complete = False


class Api:
    """Speaks to one project. Close it when done."""

    def __init__(
        self, opening: providers.Opening, *, tokens_of: tokens.Tokens, project: str
    ) -> None:
        self.project = project
        self._tokens = tokens_of
        usual = opening.endpoints.get("")

        def to(name: str, address: str) -> client.Client:
            return client.Client(
                opening.endpoints.get(name, usual or address),
                observer=opening.observer,
                clock=opening.clock,
                headers=tokens_of.headers,
                read=errors.read,
                table=errors.TABLE,
                limits=opening.limits,
            )

        self._compute = to("compute", COMPUTE)
        self._resources = to("cloudresourcemanager", RESOURCES)
        self._services = to("serviceusage", SERVICES)

    async def get(
        self, call: contract.ApiCall, ref: str, *, params: Mapping[str, Any] | None = None
    ) -> Body | None:
        """The thing at this place; None where Google says clearly that there is none.

        Raises:
            outcomes.Fault: anything else, a missing right among it: that is no "gone".
        """
        try:
            return await self.send(call, ref, params=params)
        except outcomes.Fault as fault:
            if fault.code in errors.GONE:
                return None
            raise

    async def send(
        self,
        call: contract.ApiCall,
        ref: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        hide: tuple[str, ...] = (),
    ) -> Body:
        """Makes this call once on what stands behind the project."""
        path = f"/compute/v1/projects/{self.project}/{ref}"
        return await self._sent(self._compute, call, path, params=params, body=body, hide=hide)

    async def delete(self, call: contract.ApiCall, ref: str) -> None:
        """Has it deleted; returns once that is accepted, or where it is gone already."""
        await self.get(call, ref)

    async def aggregated(
        self, call: contract.ApiCall, *, kind: str, filtered: str | None = None
    ) -> Aggregated:
        """All of a kind over all zones and pages."""
        found = Aggregated()
        async for page in self._pages(call, f"aggregated/{kind}", filtered=filtered):
            found.take(page, kind=kind)
        return found

    async def all_of(
        self, call: contract.ApiCall, ref: str, *, filtered: str | None = None
    ) -> list[Body]:
        """All rows of a list, over all its pages."""
        rows: list[Body] = []
        async for page in self._pages(call, ref, filtered=filtered):
            items = page.get("items")
            rows += [one for one in items if isinstance(one, dict)] if items else []
        return rows

    async def held_rights(self, needed: tuple[str, ...]) -> frozenset[str]:
        """Those of the rights that the credential has in the project; asking needs none."""
        held: set[str] = set()
        for start in range(0, len(needed), 100):  # Google takes a hundred at once
            body = {"permissions": list(needed[start : start + 100])}
            path = f"/v1/projects/{self.project}:testIamPermissions"
            told = await self._sent(self._resources, calls.TEST_RIGHTS, path, body=body)
            held.update(one for one in told.get("permissions", ()) if isinstance(one, str))
        return frozenset(held)

    async def service_state(self) -> str:
        """Whether Compute Engine is switched on in the project: `ENABLED` or not."""
        path = f"/v1/projects/{self.project}/services/compute.googleapis.com"
        told = await self._sent(self._services, calls.SERVICE, path)
        return str(told.get("state", ""))

    def prove_anew(self) -> None:
        """Has the next call prove who we are, whatever token is held."""
        self._tokens.forget()

    async def close(self) -> None:
        """Gives connections back."""
        for one in (self._compute, self._resources, self._services):
            await one.close()

    async def _pages(self, call: contract.ApiCall, ref: str, *, filtered: str | None) -> Any:
        params: dict[str, Any] = {"maxResults": _PAGE}
        if filtered is not None:
            params["filter"] = filtered
        for _ in range(MOST_PAGES):
            page = await self.send(call, ref, params=params)
            yield page
            following = page.get("nextPageToken")
            if not isinstance(following, str) or not following:
                return
            params["pageToken"] = following
        raise client.out_of_shape(call)

    async def _sent(
        self,
        to: client.Client,
        call: contract.ApiCall,
        path: str,
        *,
        hide: tuple[str, ...] = (),
        **options: Any,
    ) -> Body:
        await self._tokens.headers(call)  # so that the token to hide is the one that is sent
        hide = (*hide, *self._tokens.secrets())
        try:
            answer = await to.send(call, path, hide=hide, **options)
        except outcomes.Fault as fault:
            if fault.outcome is outcomes.Outcome.AUTH_LOST:
                self._tokens.forget()
            raise
        if not isinstance(answer.body, dict):
            raise client.out_of_shape(call)
        return answer.body
