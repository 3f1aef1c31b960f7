"""One join: what is asked for, what it comes to, and its doing, each in a file of its own."""
