"""Files of camera poses: formats, conventions, conversion and inspection (docs/pose-files.md)."""
