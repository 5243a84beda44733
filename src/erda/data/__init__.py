"""What comes in: file formats, the catalogue of datasets, streams of tasks, the embedded dataset."""
