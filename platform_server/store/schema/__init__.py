"""The migrations, one numbered SQL file each; `platform_server.store.migrations` reads them.

A file that has been released is never edited: a change is a new file.
"""
