"""The node's one session with its Platform: opened, held, renewed, and opened again for years."""
