"""What is left of a SQLite store when the power fails? Run by `make power-cuts`."""
