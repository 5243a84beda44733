"""Methods, datasets and presets to compare `erda` with. `erda` finds them by the entry points of this package."""
