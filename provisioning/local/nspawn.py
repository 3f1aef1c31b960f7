"""local-nspawn, which is what `local` means: container machines on this host."""

from provisioning import contract, providers
from provisioning.local import driver, machines

SETTINGS = driver.SETTINGS


def open_driver(opening: providers.Opening) -> contract.Driver:
    """A driver; raises `providers.Refused` where nothing here can act as root."""
    return driver.opened(machines.Kind.NSPAWN, opening)
