"""The search for settings on validation data."""
