"""The Platform's processes: the host that keeps the sockets, and the engine it starts.

The one place where objects are built and joined.
"""
