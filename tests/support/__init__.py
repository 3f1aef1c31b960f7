"""What several tests need: real servers and the small programs around them."""
