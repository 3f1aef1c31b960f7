"""Measurements as ratios against a limit taken in the same run; `./scripts/bench NAME`."""
