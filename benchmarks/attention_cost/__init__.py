"""The parts of ``benchmarks/attention.py``.

``shapes`` what is attended to; ``columns`` the implementations side by side; ``planar`` the plain one that per-token
encodings are held to; ``scopes`` how much of a block is around them; ``session`` runs it all; ``memory`` weighs a column;
``verdicts`` the targets; ``report`` writes. What is no business of attention is in ``benchmarks/measuring/``.
"""
