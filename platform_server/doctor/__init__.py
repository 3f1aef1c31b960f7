"""What `enlist doctor` looks at on a Platform: inside a running engine, and from outside."""
