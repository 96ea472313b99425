"""Printing the first of many sentences: a data set of thousands of clips has thousands of notes."""

from collections.abc import Sequence

_TOLD = 10


def tell_first(word: str, sentences: Sequence[object], *, rest: str = "more") -> None:
    """Print the first ten, each behind ``word``, and how many there are beyond; ``rest`` says where those are found."""
    for sentence in sentences[:_TOLD]:
        print(f"{word}: {sentence}")
    if len(sentences) > _TOLD:
        print(f"{word}: {len(sentences) - _TOLD} {rest}")
