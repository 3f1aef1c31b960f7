"""Servers at UpCloud: adapter, table of calls, codes and catalogue (API 1.3)."""
