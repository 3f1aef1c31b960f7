"""Looks at what the installer put on a machine: `enlist doctor` for the installation itself.

Reads, compares, and names the command that mends; what is safe it may also mend. Runs with the
system's own Python too (`python3 -m installer.checkup`), for a machine on which the release's
interpreter is gone and no `enlist` starts.
"""
