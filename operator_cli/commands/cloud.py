"""`enlist cloud`: one file a noun, loaded when it is called."""

from operator_cli import lazy

_TABLE = {
    "providers": (
        "operator_cli.commands.cloud_providers:providers",
        "Show which providers can be used, and what is missing for the rest.",
    ),
    "connections": (
        "operator_cli.commands.cloud_connections:connections",
        "Credentials at providers: save, check, forget, consent.",
    ),
    "catalog": (
        "operator_cli.commands.cloud_catalog:catalog",
        "Show what can be ordered, and for how much.",
    ),
    "machines": (
        "operator_cli.commands.cloud_machines:machines",
        "Order machines that enlist themselves, look at them, delete them.",
    ),
    "volumes": (
        "operator_cli.commands.cloud_volumes:volumes",
        "Disks that outlive machines: create, attach, detach, delete.",
    ),
    "snapshots": (
        "operator_cli.commands.cloud_snapshots:snapshots",
        "Images of machines, for other machines: create, delete.",
    ),
    "addresses": (
        "operator_cli.commands.cloud_addresses:addresses",
        "Stable addresses that outlive machines: create, attach, detach, delete.",
    ),
    "orphans": (
        "operator_cli.commands.cloud_orphans:orphans",
        "What carries this installation's id at a provider and belongs to nothing that is known.",
    ),
    "issuer": (
        "operator_cli.commands.cloud_issuer:issuer",
        "The static files that providers read to believe this Platform without a stored secret.",
    ),
    "costs": (
        "operator_cli.commands.cloud_costs:costs",
        "Show what is paid by the hour, and what was paid so far.",
    ),
}

_TEXT = """Machines from providers, and what they cost.

Examples:
  enlist cloud providers
  enlist cloud machines create demo --provider local --wait
  enlist cloud connections save hetzner --provider hetzner
  enlist cloud catalog --provider hetzner
  enlist cloud costs
"""

cloud = lazy.LazyGroup("cloud", table=_TABLE, text=_TEXT)
