"""The Platform's trust keys, the statements they sign, and the certificates they stand behind.

Not the machine's side: what a node believes is `wire_protocol.trust` and `worker_agent.trust`.
"""
