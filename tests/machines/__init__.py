"""Enlist on real machines; see README.md of this folder."""
