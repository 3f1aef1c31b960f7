"""Our tags as Hetzner Cloud's labels, and the selectors by which they are looked for.

Selectors are a little language; only our own ids, which mean themselves in it, are ever put in.
"""

from provisioning import contract, naming, outcomes

LONGEST = 63


def of(owner: contract.Owner) -> dict[str, str]:
    """The labels of this owner."""
    return dict(naming.tags_of(owner))


def selector(owner: contract.Owner) -> str:
    """The label selector of one operation of one installation."""
    return f"{of_installation(owner.installation)},{naming.OPERATION}=={safe(owner.operation)}"


def is_same_order(one: contract.Owner | None, other: contract.Owner) -> bool:
    """Whether both are of one operation, whatever the attempt: a key serves all of them."""
    return one is not None and (
        (one.installation, one.operation) == (other.installation, other.operation)
    )


def of_installation(installation: str) -> str:
    """The label selector of one installation."""
    return f"{naming.INSTALLATION}=={safe(installation)}"


def safe(text: str) -> str:
    """A value that means itself inside a selector: our own ids do, anything else is refused."""
    if not _is_label(text):
        raise outcomes.Fault(
            f"{text!r} cannot be looked for by label: letters, digits, '-', '_' and '.', "
            "at most 63.",
            outcome=outcomes.Outcome.NOT_DONE_PERMANENT,
            topic=outcomes.Topic.INPUT,
        )
    return text


def strange(owner: contract.Owner) -> list[str]:
    """The tags of this owner that could not be labels."""
    return [name for name, value in naming.tags_of(owner).items() if not _is_label(value)]


def _is_label(value: str) -> bool:
    return (
        0 < len(value) <= LONGEST
        and value.isascii()
        and value[0].isalnum()
        and value[-1].isalnum()
        and value.replace("-", "").replace("_", "").replace(".", "").isalnum()
    )
