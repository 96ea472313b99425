"""The small network of the procedural street: layers, training, and the estimator around them."""
