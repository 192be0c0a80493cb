"""Models of what Windlass promises, and what checks them."""
