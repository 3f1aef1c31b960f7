"""Dispatch: what the Platform tells one Agent to do, signed with a trust key and kept as rows."""
