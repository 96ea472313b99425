"""``merope history``: images of other traversals near a pose."""
