"""Learned features matched between frames, and the path solved from the matches on rays."""
