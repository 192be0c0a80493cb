"""The shop's jobs; found because the file is called `jobs`."""

from django.contrib.auth import get_user_model

from windlass.contrib.django import queue


@queue.job(max_attempts=3)
def confirm(number: int) -> str:
    """Handlers use the ORM like a view does."""
    users = get_user_model().objects.count()
    return f"order {number} confirmed, one of {users} users"
