"""How does an application test its jobs? On the real engine, at the speed of a function call."""

from windlass.testing.kit import Kit, override

__all__ = ["Kit", "override"]
