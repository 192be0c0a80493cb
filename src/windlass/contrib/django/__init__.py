"""How does a Django project enqueue jobs? `INSTALLED_APPS = [..., "windlass.contrib.django"]`.

`from windlass.contrib.django import queue` in an app's `jobs.py`; `manage.py windlass_worker` runs them;
the admin shows them. `WINDLASS = {"DATABASE_URL": "..."}` in the settings says where the store is.
"""

from windlass.contrib.django.queue import DjangoQueue, queue

__all__ = ["DjangoQueue", "queue"]
