"""Continual few-shot relation learning: new relations from a handful of examples, without forgetting the old ones."""

__version__ = "0.1.0"
