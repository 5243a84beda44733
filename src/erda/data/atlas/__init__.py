"""The embedded dataset `atlas`: relations between people, places, works, organisations and more, written for `erda`.

The sentences are English of our own in TOML files, one a domain; names are real, persons and facts are invented.
Nothing is downloaded. docs/atlas.md says how it is made and how hard it is.
"""

from __future__ import annotations

from erda.data.atlas.generate import build, corpus, unrelated

__all__ = ["build", "corpus", "unrelated"]
