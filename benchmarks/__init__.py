"""Programs that measure what no test can assert: times, memory, registers."""
