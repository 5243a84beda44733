"""Hypothesis settings of this folder: no deadline, since the machine may be busy."""

from hypothesis import settings

settings.register_profile("files", deadline=None, max_examples=60)
settings.load_profile("files")
