"""The paper's experiments: what they are, running them, and their sections of a report."""
