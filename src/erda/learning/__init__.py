"""Building blocks of methods: losses, memory, prototypes, hard negatives, the gradient loop."""
