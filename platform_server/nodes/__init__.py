"""Nodes: the register of enrolled machines, their states, and whether they answer.

Not what runs on them.
"""
