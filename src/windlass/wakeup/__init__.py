"""Hints that jobs may be there. Never the truth: polling alone is always correct."""
