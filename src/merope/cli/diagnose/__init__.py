"""`merope diagnose`: one file per command."""
