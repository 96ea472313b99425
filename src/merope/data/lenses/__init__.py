"""Files of lenses: calibration formats and what a lens is like (docs/lenses.md)."""
