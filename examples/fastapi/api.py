"""A FastAPI application that answers at once and does the work afterwards, in the same process."""

from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel

from windlass import Queue
from windlass.contrib.fastapi import get_queue, lifespan

queue = Queue("sqlite:///jobs.db")


class Order(BaseModel):
    """What a customer wants."""

    number: int
    email: str


@queue.job(max_attempts=3)
async def confirm(order: Order) -> str:
    """Tell the customer."""
    return f"order {order.number} confirmed to {order.email}"


app = FastAPI(lifespan=lifespan(queue, coroutines=20))


@app.post("/orders", status_code=202)
async def place(order: Order) -> dict[str, str]:
    """Accept an order: the job is on disk before the answer is sent. The same order twice is one job."""
    job = await confirm.options(key=f"order:{order.number}").enqueue_async(order)
    return {"job": job.id}


@app.get("/jobs/{name}")
def look(name: str, jobs: Annotated[Queue, Depends(get_queue)]) -> dict[str, str]:
    """What became of a job."""
    return {"state": jobs.get(name).state.value}
