"""Clips to score: generated folders, pose files and true clips, and the cameras recovered from them."""
