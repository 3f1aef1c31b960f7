"""`client.cloud`: what can be ordered, what it costs, and the nouns below it."""

from typing import TYPE_CHECKING

from enlist import calls, cloud_connections, cloud_machines, cloud_resources, methods

if TYPE_CHECKING:
    from wire_protocol import admin
    from wire_protocol import cloud as models


def show() -> "calls.Call[models.Cloud]":
    """Which providers can be used, and what is missing for the rest."""
    return calls.Call(method="GET", path="/cloud", answer="cloud:Cloud")


def catalog(
    *,
    provider: str | None = None,
    connection: str | None = None,
    region: str | None = None,
    role: str | None = None,
    nested_virt: bool = False,
    untested: bool = False,
) -> "calls.Call[models.Catalog]":
    """What may be ordered now, with prices; `untested` shows also what nobody has tried."""
    return calls.Call(
        method="GET",
        path="/cloud/catalog",
        answer="cloud:Catalog",
        query=calls.given(
            provider=provider,
            connection=connection,
            region=region,
            role=role,
            nested_virt="true" if nested_virt else None,
            untested="true" if untested else None,
        ),
    )


def costs(*, infra: str | None = None) -> "calls.Call[models.Costs]":
    """What each connection and machine costs by the hour and has cost so far."""
    return calls.Call(
        method="GET", path="/cloud/costs", answer="cloud:Costs", query=calls.given(infra=infra)
    )


def issuer() -> "calls.Call[models.Issuer]":
    """The static files of our own OIDC issuer, for a public https host."""
    return calls.Call(method="GET", path="/cloud/issuer", answer="cloud:Issuer")


def rotate_issuer(*, at_once: bool = False) -> "calls.Call[admin.Done]":
    """Shows a further key, which signs in a month; `at_once` where the present one is stolen."""
    return calls.Call(
        method="POST",
        path="/cloud/issuer/rotate",
        answer="admin:Done",
        body={"at_once": at_once},
        keyed=True,
    )


class Cloud(methods.Noun):
    """`client.cloud`."""

    def __init__(self, sender: methods.Sender) -> None:
        super().__init__(sender)
        self.connections = cloud_connections.Connections(sender)
        self.machines = cloud_machines.Machines(sender)
        self.resources = cloud_resources.Resources(sender)

    show = methods.Sync(show)
    catalog = methods.Sync(catalog)
    costs = methods.Sync(costs)
    issuer = methods.Sync(issuer)
    rotate_issuer = methods.Sync(rotate_issuer)


class AsyncCloud(methods.AsyncNoun):
    """`client.cloud`, to be awaited."""

    def __init__(self, sender: methods.AsyncSender) -> None:
        super().__init__(sender)
        self.connections = cloud_connections.AsyncConnections(sender)
        self.machines = cloud_machines.AsyncMachines(sender)
        self.resources = cloud_resources.AsyncResources(sender)

    show = methods.Async(show)
    catalog = methods.Async(catalog)
    costs = methods.Async(costs)
    issuer = methods.Async(issuer)
    rotate_issuer = methods.Async(rotate_issuer)
