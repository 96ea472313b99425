"""Throughput and memory of a whole Wan transformer: MeRoPE beside UCPE, GTA and the base, training and denoising.

``python benchmarks/model.py --help`` says what is measured and how; the parts are in ``model_cost/``.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.model_cost.command import main

if __name__ == "__main__":
    sys.exit(main())
