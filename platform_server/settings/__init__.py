"""The Platform's settings: what there is, where each value came from. No I/O but reading files."""
