"""Machines from providers: one contract, one folder a provider, one renderer for first boot.

Knows neither the wire nor the Platform: what an order is for, who may give it and what it may cost
is decided above.
"""
