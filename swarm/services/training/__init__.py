"""The tasks that join the pipeline's decisions to the network and the device thread."""
