"""Whether one of two paired numbers is larger more often than chance: the sign test, exactly."""


def sign_test_p(num_lower: int, num_higher: int) -> float:
    """Two-sided p-value of the exact sign test; pairs that tie are left out before.

    The chance, if either sign were as likely, of a split at least as uneven: with n = lower + higher and
    k the smaller count, min(1, 2 sum_{i <= k} C(n, i) / 2^n). 1 where no pair differs.

    Raises:
        ValueError: if a count is negative.
    """
    if num_lower < 0 or num_higher < 0:
        raise ValueError(f"num_lower and num_higher must be counts, got {num_lower} and {num_higher}.")
    total, fewer = num_lower + num_higher, min(num_lower, num_higher)
    # Whole numbers throughout: the tail of thousands of clips is far below what a float holds.
    term = tail = 1
    for chosen in range(fewer):
        term = term * (total - chosen) // (chosen + 1)
        tail += term
    return min(1.0, 2 * tail / 2**total)
