"""FID, KID, FVD and KVD: how far generated frames and videos are from real ones, under a stated protocol.

`measure` compares sets of clips, `read_fidelity` reads what ``merope fidelity`` wrote, and `check_same_protocol` refuses
numbers that were not made alike.
"""

from merope.evaluation.fidelity.measuring import measure
from merope.evaluation.fidelity.protocol import PRESETS, FidelityProtocol, Resize
from merope.evaluation.fidelity.results import (
    FidelityResult,
    FidelityScore,
    check_same_protocol,
    read_fidelity,
    write_fidelity,
)

__all__ = [
    "PRESETS",
    "FidelityProtocol",
    "FidelityResult",
    "FidelityScore",
    "Resize",
    "check_same_protocol",
    "measure",
    "read_fidelity",
    "write_fidelity",
]
