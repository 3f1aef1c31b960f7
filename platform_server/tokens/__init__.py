"""Enrollment tokens: issued once, stored as a hash, redeemed by one conditional write.

Not what a machine must show to become a node: that is enrollment's part.
"""
