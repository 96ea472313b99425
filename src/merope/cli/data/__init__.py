"""`merope data`: one file per command."""
