"""What the metrics cannot see, found and named."""
