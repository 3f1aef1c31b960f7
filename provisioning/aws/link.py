"""One call to AWS: announced, sent once from a thread, bounded, its refusal read by our tables.

Clients are made per service and region and share one loader of descriptions, since the description
of EC2 takes half a second to read. Nothing of the host's configuration reaches them (profiles,
addresses in the environment, retries) except a proxy and a bundle of authorities.

Known limit: botocore reads an answer whole, whatever its size. A call that was given up runs on in
its thread until its own time limit; four at once are the most a driver makes.
"""

import asyncio
import concurrent.futures
import dataclasses
import functools
import os
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, cast

import boto3.session
import botocore
import botocore.config
import botocore.exceptions
import botocore.loaders
import botocore.session

from provisioning import answers, contract, outcomes, providers
from provisioning.aws import calls, errors
from runtime_kit import clock as clock_kit

_AT_ONCE: Final = 4
_MOST_PAGES: Final = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Keys:
    """What a call is signed with; prints without its secrets."""

    access_key: str
    secret_key: str = dataclasses.field(repr=False)
    token: str | None = dataclasses.field(default=None, repr=False)


class Link:
    """The calls of one driver. `endpoints` are by service, `""` stands for all of them."""

    def __init__(
        self,
        *,
        observer: contract.Observer,
        clock: clock_kit.Clock,
        endpoints: Mapping[str, str],
        limits: providers.TimeLimits,
    ) -> None:
        self.clock = clock
        self._limits = limits
        self._observer = observer
        self._endpoints = endpoints
        self._pool = concurrent.futures.ThreadPoolExecutor(
            max_workers=_AT_ONCE, thread_name_prefix="enlist-aws"
        )
        self._session = _isolated()
        self._clients: dict[tuple[str, str], tuple[Keys | None, Any]] = {}
        self._making = threading.Lock()

    async def call(
        self,
        row: contract.ApiCall,
        *,
        region: str,
        keys: Keys | None,
        table: Mapping[str, answers.Verdict] = errors.TABLE,
        hide: tuple[str, ...] = (),
        **parameters: Any,
    ) -> dict[str, Any]:
        """Sends the call once and gives its answer; without `keys` it is not signed.

        Raises `Fault`, and whatever the observer raises: then nothing was sent.
        """
        await self._observer(row)
        send = functools.partial(self._send, row, region=region, keys=keys, parameters=parameters)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, send)
        except Exception as error:
            if isinstance(error, outcomes.Fault):
                raise
            secrets = () if keys is None else (keys.secret_key, keys.token or "")
            raise errors.fault_of(
                error, what=row.name, clock=self.clock, hide=(*hide, *secrets), table=table
            ) from error

    async def ambient_keys(self) -> Keys:
        """What this host finds by itself: environment, shared files, container role, instance.

        Raises `Fault` (`AUTH_LOST`) where it finds nothing.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, _find_ambient)
        except Exception as error:
            raise errors.fault_of(
                error, what="Looking for this host's own identity", clock=self.clock
            ) from error

    def close(self) -> None:
        """Gives the connections back; calls under way end in their threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for _, client in self._clients.values():
            client.close()
        self._clients.clear()

    def _send(
        self,
        row: contract.ApiCall,
        *,
        region: str,
        keys: Keys | None,
        parameters: Mapping[str, Any],
    ) -> dict[str, Any]:
        service, _, operation = row.name.removesuffix(calls.DRY_RUN).partition(":")
        client = self._client(service, region=region, keys=keys)
        method = getattr(client, botocore.xform_name(operation))
        return cast("dict[str, Any]", method(**parameters))

    def _client(self, service: str, *, region: str, keys: Keys | None) -> Any:
        at = (service, region)
        with self._making:
            held, client = self._clients.get(at, (None, None))
            if client is None or held != keys:
                client = _made(
                    self._session,
                    service,
                    region=region,
                    keys=keys,
                    endpoint=self._endpoints.get(service) or self._endpoints.get(""),
                    limits=self._limits,
                )
                self._clients[at] = (keys, client)
        return client


async def pages(ask: Any, *, items: str, **parameters: Any) -> AsyncIterator[Any]:
    """Every item of every page; `ask` takes the parameters of one page.

    Raises `Fault` (`UNKNOWN`) where there is no end: an incomplete answer is no answer.
    """
    following: dict[str, Any] = {}
    for _ in range(_MOST_PAGES):
        answer = await ask(**parameters, **following)
        for item in answer.get(items, []):
            yield item
        if not answer.get("NextToken"):
            return
        following = {"NextToken": answer["NextToken"]}
    raise answers.unanswered(f"The list of {items}", f"more than {_MOST_PAGES} pages")


@functools.lru_cache(maxsize=1)
def _loader() -> botocore.loaders.Loader:
    return botocore.loaders.create_loader()


def _isolated() -> boto3.session.Session:
    core = botocore.session.Session(
        session_vars={
            "profile": (None, None, None, None),
            "config_file": (None, None, os.devnull, None),
            "credentials_file": (None, None, os.devnull, None),
        }
    )
    core.register_component("data_loader", _loader())
    return boto3.session.Session(botocore_session=core)


def _find_ambient() -> Keys:
    found = botocore.session.Session().get_credentials()
    if found is None:
        raise botocore.exceptions.NoCredentialsError
    frozen = found.get_frozen_credentials()
    if not frozen.access_key or not frozen.secret_key:
        raise botocore.exceptions.NoCredentialsError
    return Keys(frozen.access_key, frozen.secret_key, frozen.token)


def _made(
    session: boto3.session.Session,
    service: str,
    *,
    region: str,
    keys: Keys | None,
    endpoint: str | None,
    limits: providers.TimeLimits,
) -> Any:
    signing: dict[str, Any] = (
        {"aws_access_key_id": keys.access_key, "aws_secret_access_key": keys.secret_key}
        if keys is not None
        else {}
    )
    if keys is not None and keys.token:
        signing["aws_session_token"] = keys.token
    # Any: the stubs lag behind the library
    settings: dict[str, Any] = {
        "connect_timeout": limits.connect,
        "read_timeout": max(limits.read, limits.create),
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "max_pool_connections": _AT_ONCE,
        "ignore_configured_endpoint_urls": True,
        "user_agent_appid": "enlist",
    }
    if keys is None:
        settings["signature_version"] = botocore.UNSIGNED
    config = botocore.config.Config(**settings)
    return session.client(
        cast("Any", service), region_name=region, endpoint_url=endpoint, config=config, **signing
    )
