"""Machines on this very host: Debian with cloud-init, in containers or emulated.

Not a mock: they boot the same first-boot data as a machine at a cloud. The default provider.

`driver` is the contract's side; `host` does the work as root, in this process or in the root
helper's; `keeper` is the process that holds one running machine and outlives both.
Nothing here imports more than the standard library and `runtime_kit`, since it also runs as root.
"""
