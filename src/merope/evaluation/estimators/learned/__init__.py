"""Feed-forward models that see all frames at once: VGGT, VGGT-Omega, Depth Anything 3."""
