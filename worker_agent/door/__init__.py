"""The machine's two doors: the way out to the Platform, and the port the Platform comes in by."""
