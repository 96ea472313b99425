"""Named benchmarks, and the measurements of the shipped models."""
