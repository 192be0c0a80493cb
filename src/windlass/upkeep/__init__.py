"""Keeping the fleet and the store healthy: who died, whose lease ran out, what is old enough to go."""
