"""Whether clips, caches and poses are what they say (docs/data.md)."""
