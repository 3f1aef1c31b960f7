"""One file a noun. A command prints, asks and picks; what it means is decided at the Platform."""
