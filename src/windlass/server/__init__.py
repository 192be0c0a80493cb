"""How do programs in any language speak with a queue? Over HTTP: produce, operate, work."""
