"""Reading what others wrote: strict JSON, record streams, paths that stay inside their folder."""
