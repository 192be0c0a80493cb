"""Does it stay the same for an hour of load, kills, restarts and pruning? Run by `make soak`."""
