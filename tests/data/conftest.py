"""Settings of hypothesis for the tests of this folder: a busy machine is no reason to fail."""

from hypothesis import settings

settings.register_profile("files", deadline=None, max_examples=60)
settings.load_profile("files")
