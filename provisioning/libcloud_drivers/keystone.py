"""The connection to an OpenStack: proof from Keystone, machines at Nova, both through one link.

libcloud fetches a token in the middle of another call. Here it is a call of its own, announced like
any other, made before whatever needs it; so a refused proof is never taken for a refused order.
The address that the catalogue of the cloud names must be https as well, whoever wrote it.

Known limit: an application credential only, so the project is the one it was made in.
"""

from collections.abc import Mapping
from typing import Any, Final

from libcloud.compute.drivers import openstack as libcloud_driver

from provisioning import contract, credentials, libcloud_link, outcomes, providers
from provisioning.libcloud_drivers import errors

AUTHENTICATE: Final = contract.ApiCall(name="POST /v3/auth/tokens", feature=contract.Feature.CHECK)


class _Driver(libcloud_driver.OpenStack_2_NodeDriver):  # type: ignore[misc]
    def _to_node(self, api_node: Any) -> Any:
        return api_node


class Connection:
    """One application credential's way to one region."""

    def __init__(
        self, opening: providers.Opening, credential: credentials.OpenstackApplication
    ) -> None:
        wanted = opening.endpoints.get("") or str(opening.settings["auth_url"])
        auth_url = wanted.rstrip("/").removesuffix("/v3")
        self._may_stay_here = opening.may_stay_here
        providers.check_endpoints({"auth_url": auth_url}, may_stay_here=self._may_stay_here)
        self._secret = credential.application_secret
        self._link = libcloud_link.Link(
            observer=opening.observer,
            clock=opening.clock,
            read=errors.read,
            judge=errors.judging("https://docs.openstack.org/horizon/latest/user/"),
            limits=opening.limits,
        )
        guarded = {
            name: self._guarded(getattr(_Driver, name))
            for name in (
                "connectionCls",
                "image_connectionCls",
                "network_connectionCls",
                "reservation_connectionCls",
                "volumev2_connectionCls",
                "volumev3_connectionCls",
            )
        }
        driver_class: Any = type("Driver", (_Driver,), guarded)
        self.driver: Any = driver_class(
            credential.application_id,
            self._secret.reveal(),
            ex_force_auth_url=auth_url,
            ex_force_auth_version="3.x_appcred",
            ex_force_service_region=str(opening.settings["region"]),
        )

    async def send(
        self,
        call: contract.ApiCall,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        of_images: bool = False,
        hide: tuple[str, ...] = (),
    ) -> Any:
        """Makes one call at Nova, or at Glance; gives the answer's JSON."""
        connection = self.driver.image_connection if of_images else self.driver.connection
        await self._prove(connection)
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            told = await self._link.run(
                call,
                lambda: connection.request(
                    path,
                    params=dict(params or {}),
                    data=None if body is None else dict(body),
                    headers=headers,
                    method=call.name.partition(" ")[0],
                ),
                hide=(self._secret.reveal(), str(connection.auth_token), *hide),
            )
        except outcomes.Fault as fault:
            if fault.outcome is outcomes.Outcome.AUTH_LOST:
                connection.get_auth_class().auth_token = None  # prove it anew before the next call
            raise
        return told.body

    async def close(self) -> None:
        """Gives its thread back."""
        await self._link.close()

    async def _prove(self, connection: Any) -> None:
        """Has a valid token, and an address that may be trusted with it."""
        identity = connection.get_auth_class()
        if not identity.is_token_valid():
            await self._link.run(
                AUTHENTICATE,
                connection._populate_hosts_and_request_paths,  # noqa: SLF001 - libcloud's own step
                hide=(self._secret.reveal(),),
            )
        scheme = "https" if connection.secure else "http"
        try:
            providers.check_endpoints(
                {"": f"{scheme}://{connection.host}:{connection.port}"},
                may_stay_here=self._may_stay_here,
            )
        except providers.Refused as refused:
            raise outcomes.Fault(
                f"The cloud's own catalogue names an address that cannot be used: {refused}",
                outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
                topic=outcomes.Topic.INPUT,
            ) from None

    def _guarded(self, base: Any) -> Any:
        transport = self._link.transport

        def get_auth_class(connection: Any) -> Any:
            identity = base.get_auth_class(connection)
            identity.conn_class = transport
            identity.retryCls = libcloud_link.Once
            return identity

        return self._link.guarded(base, get_auth_class=get_auth_class)
