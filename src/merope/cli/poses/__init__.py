"""`merope poses`: one file per command."""
