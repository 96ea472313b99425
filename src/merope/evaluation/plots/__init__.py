"""Paths, errors and motions as pictures."""
