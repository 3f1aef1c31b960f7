"""Hetzner Cloud, through the hcloud library with its retries off."""
