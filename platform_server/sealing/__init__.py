"""Secrets at rest: sealed with a key of their own, which the master key wraps.

Not hashing: what need not be read again (tokens) is hashed where it is kept.
"""
