"""A handler, a job and its result."""

from windlass import Queue

queue = Queue("sqlite:///jobs.db")


@queue.job(max_attempts=3)
def greet(name: str) -> str:
    """Greet somebody; what is returned is kept with the job."""
    print(f"Hello, {name}!")
    return f"greeted {name}"


if __name__ == "__main__":
    job = greet.enqueue("world")
    print("accepted", job.id)
