"""Input data: file formats, the dataset catalogue, task streams, the embedded dataset."""
