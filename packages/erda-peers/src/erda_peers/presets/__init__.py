"""Settings files of comparisons over one encoder: `erda list presets`."""
