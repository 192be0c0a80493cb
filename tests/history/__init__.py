"""What was done to a fleet of real processes, and is what came of it possible?

For crash scripts and fault tests:
`record` writes calls down, `check` judges them, `result` keeps what a run has shown.
"""
