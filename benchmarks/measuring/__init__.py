"""What the benchmarks of costs share.

``guards`` refuse; ``guarded`` runs a measurement between two looks at the machine and says what it ran on; ``timing``
interleaves; ``memory`` weighs in a process of its own; ``compiling`` says whether anything can be compiled; ``verdicts`` are
PASS and MISS; ``writing`` is Markdown; ``by_size`` runs a benchmark at several sizes, each in a process of its own.
"""
