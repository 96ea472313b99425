"""Which optional package comes with which extra of this project."""

EXTRA_OF = {
    "matplotlib": "plot",
    "pycolmap": "eval",
}
