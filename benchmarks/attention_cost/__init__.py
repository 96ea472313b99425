"""The parts of ``benchmarks/attention.py``.

``shapes`` what is attended to; ``columns`` the implementations side by side; ``planar`` the plain one that per-token
encodings are held to; ``scopes`` how much of a block is around them; ``timing`` and ``memory`` measure; ``guards`` refuse;
``session`` runs it all; ``verdicts`` the targets; ``report`` writes.
"""
