"""Cost models, partition and plans. Pure functions of their inputs."""
