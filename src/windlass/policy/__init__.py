"""Values that answer one question each, without I/O."""
