"""Droplets: adapter, table of calls, codes and catalogue of DigitalOcean (API v2)."""
