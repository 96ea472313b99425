"""`merope worlds`: one file per command."""
