"""What holds Enlist to its word."""
