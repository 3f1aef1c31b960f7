"""What is said of a machine that stays although its order or its node has ended: whether it costs.

A provider that takes no money, as machines on this very host, is never said to. Known limit: what
the host itself costs is nobody's order.
"""

from provisioning import providers


def costs_money(provider_name: str) -> bool:
    """Whether its machines are paid for; a provider that is none of ours is taken to charge."""
    try:
        return providers.get(provider_name).costs_money
    except providers.Unknown:
        return True


def kept(provider_name: str) -> str:
    """Of a machine whose order failed."""
    if costs_money(provider_name):
        return "The machine is kept and costs money"
    return "The machine is kept, and costs nothing but room"


def goes_on(provider_name: str) -> str:
    """What follows on the words that it stays, or may be there still."""
    return "goes on costing money" if costs_money(provider_name) else "goes on taking room"
