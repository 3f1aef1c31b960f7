"""Makes the archives that the installer installs: wheels, payload, manifest, signature, upload.

Runs in a checkout, with the development environment; no archive holds it.
"""
