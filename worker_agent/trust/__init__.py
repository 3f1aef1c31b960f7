"""Keeps the machine's trust set fresh for years, without anyone touching the machine."""
