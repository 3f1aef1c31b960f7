"""A person's key at providers where nothing here closes port 22: what is refused, what is said.

Everything there is open by default and this driver makes no firewall, so an order that names who
may come in, or until when, is refused rather than half done.

Known limit: whether the image lets anybody in by password is not known here.
"""

from provisioning import contract


def refusals(request: contract.Request, *, provider: str) -> list[str]:
    """Why this order's way in cannot be had; `provider` is its title."""
    if request.ssh is None or not (request.ssh.sources or request.ssh.until):
        return []
    refusal = (
        f"At {provider} port 22 is open to everybody and is not closed from here, so --ssh-from "
        "and --ssh-for would not hold; leave them out, or close it in the provider's own firewall."
    )
    return [refusal]


def warnings(request: contract.Request, *, provider: str) -> list[str]:
    """What a person who orders a key there is told."""
    if request.ssh is None:
        return []
    return [f"At {provider} whoever has the key comes in from anywhere: port 22 is open to all."]
