"""COLMAP through pycolmap: lenses handed over as they are, or frames resampled into one that it has."""
