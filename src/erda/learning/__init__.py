"""Building blocks of methods: losses, memory, the gradient loop."""
