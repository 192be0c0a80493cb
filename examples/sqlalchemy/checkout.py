"""An order and the job that confirms it in one SQLAlchemy session: both are committed, or neither."""

import sys

from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from windlass import Queue

URL = "sqlite:///shop.db"
engine = create_engine(URL)
queue = Queue(URL)


class Base(DeclarativeBase):
    """All tables of the shop."""


class Order(Base):
    """What a customer wants."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    total: Mapped[int]
    confirmed: Mapped[bool] = mapped_column(default=False)


@queue.job(max_attempts=3)
def confirm(order_id: int) -> str:
    """Tell the customer. It may run twice, and then finds that it is done."""
    with Session(engine) as session, session.begin():
        order = session.get_one(Order, order_id)
        order.confirmed = True
        return f"order {order.id} confirmed to {order.customer}"


def place(customer: str, total: int) -> int:
    """One transaction: the order and its job."""
    with Session(engine) as session, session.begin():
        order = Order(customer=customer, total=total)
        session.add(order)
        session.flush()  # the order has its number now
        confirm.options(connection=session, key=f"order:{order.id}").enqueue(order.id)
        if total <= 0:
            raise ValueError("an order must cost something")
        return order.id


def main() -> None:
    """Place the orders of the command line, such as ann@example.org=40, and show all that there are."""
    Base.metadata.create_all(engine)
    for word in sys.argv[1:]:
        customer, _, total = word.partition("=")
        try:
            print(f"order {place(customer, int(total))} of {customer} is placed")
        except ValueError as error:
            print(f"the order of {customer} is rolled back: {error}")
    with Session(engine) as session:
        for order in session.scalars(select(Order)):
            job = queue.get(f"order:{order.id}")
            print(f"order {order.id}: its job is {job.state}, confirmed: {order.confirmed}")


if __name__ == "__main__":
    main()
