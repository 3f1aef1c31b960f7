"""Machines from providers: connections, what may be ordered, the orders themselves, the bill.

Between operations, which carry things on, and endpoints, which take wishes. Providers themselves
are `provisioning`'s.
"""
