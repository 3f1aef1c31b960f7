"""What a worker keeps on its disk besides its key, and how its programs end."""
