"""Clouds for tests: fakes with behaviour of their own, a ledger, and a script of faults."""
