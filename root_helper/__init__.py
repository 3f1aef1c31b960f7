"""What needs root on a node: a closed list of verbs, asked for over one socket.

Every order's signature is verified here, against a trust set that only root can write, so that
whoever takes the Agent gains nothing.
"""
