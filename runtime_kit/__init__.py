"""Small tools that would make sense in any program: clock, retry, private files, HTTP, TLS.

Nothing here knows what Enlist is, and nothing here imports the rest of it.
"""
