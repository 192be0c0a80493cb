"""A producer that is killed: sends requests under keys, and says which were accepted.

`producer.py URL FIRST COUNT`
"""

from __future__ import annotations

import os
import sys

from windlass import Queue


def main() -> None:
    url, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with Queue(url) as queue:
        request = queue.job(name="request")(lambda number: number)
        os.write(1, b"ready\n")
        for number in range(first, first + count):
            request.options(key=f"k{number}").enqueue(number)
            os.write(1, b"%d\n" % number)


if __name__ == "__main__":
    main()
