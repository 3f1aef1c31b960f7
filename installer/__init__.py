"""Puts Enlist on a machine, changes it there, and takes it away again.

It runs as root with the system's own Python, before any wheel is unpacked: the standard library
alone, and from `wire_protocol` and `runtime_kit` only modules that import nothing else either.
`installer.build` makes what is installed; it stays in the checkout and is in no archive.
"""
