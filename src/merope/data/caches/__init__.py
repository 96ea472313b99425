"""Clips as latents: what training reads."""
