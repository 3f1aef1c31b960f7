"""The gateway: the public port where agents that dial out hold their session.

Not for what travels over a session (`dispatch`), nor for how bytes travel (`runtime_kit.mux`).
"""
