"""local-qemu: machines on this host with a kernel of their own, by software emulation. Slow."""

from provisioning import contract, providers
from provisioning.local import driver, machines

SETTINGS = driver.SETTINGS


def open_driver(opening: providers.Opening) -> contract.Driver:
    """A driver; raises `providers.Refused` where nothing here can act as root."""
    return driver.opened(machines.Kind.QEMU, opening)
