"""WireGuard interfaces, driven by `ip` and `wg`: the kernel's, or wireguard-go's where it has none.

`config` says what an interface should be, `backends` bring one into being, `device` makes it so and
tells how it stands. Nothing here decides who a peer is.
"""
