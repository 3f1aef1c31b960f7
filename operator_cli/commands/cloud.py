"""`enlist cloud`: one file a noun, loaded when it is called."""

from operator_cli import lazy

_TABLE = {
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
  enlist cloud machines create demo --provider local --wait
  enlist cloud connections save hetzner --provider hetzner
  enlist cloud catalog --provider hetzner
  enlist cloud costs
"""

cloud = lazy.LazyGroup("cloud", table=_TABLE, text=_TEXT)
