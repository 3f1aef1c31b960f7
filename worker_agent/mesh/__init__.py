"""The machine's end of the WireGuard mesh: its key, its place, and the interface that follows.

The Agent makes the interface itself where it has the rights. Installed without them, the same few
steps are the root helper's, and here stays what decides about them.
"""
