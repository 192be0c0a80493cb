"""What becomes of errors: retried, given up, put off, or no longer wanted."""

from windlass import Cancel, Context, FatalError, Queue, Retry, Snooze

queue = Queue("sqlite:///failures.db")
SOON = Retry(kind="fixed", base=0.1, jitter=0)


@queue.job(retry=SOON, max_attempts=3)
def flaky(ctx: Context) -> str:
    """Fails twice; any exception is retried."""
    if ctx.attempt < ctx.max_attempts:
        raise ConnectionError("the other side is not there yet")
    return f"worked at attempt {ctx.attempt}"


@queue.job(retry=SOON, max_attempts=3)
def hopeless() -> None:
    """Fails for good: to the dead letters at once."""
    raise FatalError("no such account")


@queue.job(retry=SOON, rules={ValueError: "fatal"})
def picky(amount: int) -> None:
    """The type's rules say what other people's exceptions mean."""
    if amount < 0:
        raise ValueError("a negative amount will not get better")


@queue.job
def patient(ctx: Context) -> str:
    """Not now: again in a moment, without using up an attempt."""
    if ctx.job.snoozes < 2:  # noqa: PLR2004 - twice is enough for an example
        raise Snooze(0.1)
    return "the time had come"


@queue.job
def unwanted() -> None:
    """No longer wanted: ends as cancelled."""
    raise Cancel("the customer has left")


def main() -> None:
    """Run one of each and tell how it ended."""
    jobs = [flaky.enqueue(), hopeless.enqueue(), picky.enqueue(-1), patient.enqueue(), unwanted.enqueue()]
    with queue.worker():
        for handle in jobs:
            job = handle.wait(timeout=30)
            print(f"{job.type:10} {job.state:10} {job.error.message if job.error else handle.result()}")


if __name__ == "__main__":
    main()
