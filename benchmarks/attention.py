"""Latency and memory of one camera attention block: MeRoPE beside UCPE, GTA and attention without cameras.

``python benchmarks/attention.py --help`` says what is measured and how; the parts are in ``attention_cost/``.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.attention_cost.command import main

if __name__ == "__main__":
    sys.exit(main())
