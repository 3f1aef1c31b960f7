"""Backup and restore: the whole Platform in one encrypted file, and back.

`create` makes the parts from one snapshot, `archive` is their form, `encryption` the age layer
around it; `verify` reads a file to its end, `restore` fills an empty place with it, and
`aftermath` says what is no longer true afterwards.
"""
