"""A job commits with the row that caused it: never an order without its e-mail, nor the other way round."""

import sqlite3

from windlass import Queue

queue = Queue("sqlite:///shop.db")


@queue.job
def confirm(order: int, to: str) -> None:
    """Tell the customer."""
    print(f"order {order} is confirmed to {to}")


def place_order(connection: sqlite3.Connection, customer: str, total: int) -> int:
    """One transaction: the order and the job that confirms it."""
    with connection:
        row = connection.execute("insert into orders (customer, total) values (?, ?)", (customer, total))
        order = int(row.lastrowid or 0)
        confirm.options(connection=connection, key=f"confirm:{order}").enqueue(order, customer)
        if total < 0:
            raise ValueError("an order must cost something")
    return order


def main() -> None:
    """One good order and one that is rolled back."""
    print(queue.store.status().url)  # opens the store, which makes its tables
    connection = sqlite3.connect("shop.db")
    connection.execute("create table if not exists orders (id integer primary key, customer text, total int)")
    place_order(connection, "ann@example.org", 40)
    try:
        place_order(connection, "bob@example.org", -1)
    except ValueError as error:
        print("rolled back:", error)
    connection.close()
    with queue.worker():
        print("ended as", queue.wait("confirm:1", timeout=30).state)


if __name__ == "__main__":
    main()
