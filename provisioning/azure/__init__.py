"""Microsoft Azure, spoken to over its own resource manager: no SDK between us and the wire."""
