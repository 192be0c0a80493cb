"""A fleet in a seeded world: real workers, producers and operators on a real store, and the faults they meet.

Everything runs on one thread, and every choice comes from the seed: the same seed is the same run. A run is a
list of steps, each with a seed of its own, so that a failing one can be replayed without some of its steps.

    determinism.py  chance, ids and clocks from the seed
    application.py  the types that every process knows, and what their handlers do
    process.py      a simulated process: its store, its application, its faults
    worker.py       a worker whose loops tick when the world says so
    people.py       producers and operators, whose requests are recorded
    world.py        the processes, the steps that are possible, and the choice between them
    checker.py      what must hold after each step, read from the store and the recorded calls
    story.py        running a seed, shrinking a failure
"""
