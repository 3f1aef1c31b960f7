"""The one place where the Platform's state lives: SQL on SQLite or PostgreSQL.

`opening.open_store` makes a `contract.Store`; everything above knows only the contract. A work
function written once runs on both; the whole store suite is run on both.
"""
