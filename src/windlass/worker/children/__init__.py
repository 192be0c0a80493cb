"""Processes of a worker's own, in which jobs run that must be limited, killed or kept apart."""
