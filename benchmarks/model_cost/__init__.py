"""The parts of ``benchmarks/model.py``.

``sizes`` widths, tokens and arithmetic; ``methods`` transformers with a camera encoding that share one backbone; ``steps`` a
training step and a denoising loop; ``session`` runs it all; ``memory`` weighs a method; ``projection`` computes what was
not measured; ``report`` writes. The branch alone is measured by ``attention_cost``.
"""
