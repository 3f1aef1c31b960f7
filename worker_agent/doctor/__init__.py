"""What `enlist doctor` looks at on a worker. Looks only; what it may mend it hands out as mends."""
