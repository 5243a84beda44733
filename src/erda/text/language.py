"""A small detector of text that is not English, for one honest warning.

It counts letters of other scripts and frequent function words. On FewRel and Re-DocRED it is wrong about fewer than one
sentence in a thousand; short sentences of other languages can pass unnoticed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from itertools import islice

from erda.text.pronouns import word_list

ENGLISH, SHARED, FOREIGN = (word_list(name) for name in ("english", "shared", "foreign"))
LAST_LATIN = 0x24F  # code point; Vietnamese letters follow at 0x1E00
LEAST_WORDS = 10  # lower-case words without an English one among them that look like another language
MOST_READ = 100  # sentences
NOT_ENGLISH = (
    "This text does not look English. The encoder and the entity finders read English only, so answers about it are "
    "unreliable. For other languages, see docs/howto/encoder.md."
)


def is_foreign(tokens: Sequence[str]) -> bool:
    """Return whether a sentence looks like another language than English.

    >>> is_foreign("Angela Merkel wurde in Hamburg geboren".split()), is_foreign("Ann was born in Oslo".split())
    (True, False)
    """
    letters = [letter for token in tokens for letter in token if letter.isalpha()]
    n_other = sum(ord(letter) > LAST_LATIN and not 0x1E00 <= ord(letter) < 0x1F00 for letter in letters)
    words = [token for token in tokens if token.isalpha()]
    n_english, n_shared = (sum(word.lower() in listed for word in words) for listed in (ENGLISH, SHARED))
    n_lower = sum(word == word.lower() for word in words)
    return (
        2 * n_other > len(letters)
        or sum(word in FOREIGN for word in words) > n_english + n_shared / 2
        or (n_lower >= LEAST_WORDS and not n_english + n_shared)
    )


def warn_of_language(sentences: Iterable[Sequence[str]]) -> str:
    """Warn if most of the first sentences are not English; return the warning. Python shows it once per process."""
    read = [is_foreign(tokens) for tokens in islice(sentences, MOST_READ)]
    if 2 * sum(read) <= len(read):
        return ""
    warnings.warn(NOT_ENGLISH, stacklevel=2)
    return NOT_ENGLISH
