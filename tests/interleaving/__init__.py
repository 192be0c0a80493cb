"""Verbs of the real PostgreSQL store, interleaved statement by statement in an order that a seed chooses.

A verb on PostgreSQL is several statements, and other sessions act between them. Here each actor has a thread
and sessions of its own, and only one actor runs at a time: it stops before each statement and before each
commit, until the scheduler lets it go on. An actor that waits for a lock stays in the server until its
blocker goes on. The same seed gives the same schedule and the same verdict.

    turns.py    actors, and the scheduler that lets one of them run
    stage.py    a database, a store for each actor, and the way back to an empty database
    scenes.py   what is in the store when a seed begins, and what its actors do
    deeds.py    the calls that actors make
    checker.py  what must hold in every committed state, read from the tables and the recorded calls
    story.py    running a seed, shrinking a failure
"""
