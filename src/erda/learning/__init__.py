"""The bricks of a method: losses, memory, prototypes, hard negatives, the one gradient loop."""
