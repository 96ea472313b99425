"""Evaluations by name: which clips, how long, which estimator, which averages; and whether a run is one of them."""
