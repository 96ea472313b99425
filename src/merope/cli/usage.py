"""Command lines that no parser refuses and that ask for nothing that could be done."""


class UsageError(Exception):
    """Flags that contradict each other or are missing; the command ends with 2, as for an unknown flag."""
