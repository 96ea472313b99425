"""``merope lens``: lenses in calibration files."""
