"""Tries one real machine at a provider, from the order to its confirmed end, by our own commands.

What fakes cannot show: that a live account answers as they do. Not shipped; nothing here runs in
the product. It spends a few cents, and only where an account was set up for it by hand.
"""
