"""The Platform: the control plane that `enlist serve` starts.

Not for machines that join (worker_agent) nor for clients (enlist, operator_cli). The layers and
who may import whom stand in pyproject.toml.
"""
