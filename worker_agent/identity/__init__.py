"""Who this machine is: its key, its certificate, and how far its join has come."""
