"""Settings files and flags -> validated settings -> built objects."""
