"""Coroutines wait together: a hundred at a time in one worker, without a thread each."""

import asyncio
import time

from windlass import Queue

queue = Queue("sqlite:///fetch.db")


@queue.job(timeout=10)
async def fetch(url: str) -> int:
    """Stands for a slow request."""
    await asyncio.sleep(0.2)
    return len(url)


def main() -> None:
    """Three hundred requests of 0.2 s each."""
    handles = queue.enqueue_many(fetch.draft(f"https://example.org/{number}") for number in range(300))
    begun = time.monotonic()
    with queue.worker():
        total = sum(handle.result(timeout=60) for handle in handles)
    print(f"{len(handles)} requests, {total} characters, {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main()
