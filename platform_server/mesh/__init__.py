"""The WireGuard mesh, seen from the Platform: one interface, and every node that takes part a peer.

`founding` makes the Platform's key and network once, `members` gives addresses out in the store,
`hub` keeps the interface of the engine that leads, `readiness` says who is connected.
"""
