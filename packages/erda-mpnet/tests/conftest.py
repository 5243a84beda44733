"""Fixtures of tiny models."""

from tiny_models import bert, folders

__all__ = ["bert", "folders"]
