"""Motion prototypes of a data set, and the few trajectories that stand for all in an evaluation (paper, 4.1)."""

from merope.data.selection.prototypes.finding import PrototypeConfig, Prototypes, find_prototypes
from merope.data.selection.prototypes.inputs import InputOptions, Trajectory, read_trajectories
from merope.data.selection.prototypes.results import split_of, write_prototypes
from merope.data.selection.prototypes.selection import select, with_variants
from merope.data.selection.prototypes.table import PathTable, tabulate

__all__ = [
    "InputOptions",
    "PathTable",
    "PrototypeConfig",
    "Prototypes",
    "Trajectory",
    "find_prototypes",
    "read_trajectories",
    "select",
    "split_of",
    "tabulate",
    "with_variants",
    "write_prototypes",
]
