"""Enrollment: what a machine must show to become a node, and how refusals are kept alike.

Not the node itself: that is nodes' part. Not the token: that is tokens'.
"""
