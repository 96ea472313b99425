"""What an evaluation writes: the page, its figures and tables."""
