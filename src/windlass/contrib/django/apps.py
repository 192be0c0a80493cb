"""What does Django do with us when it starts?"""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class WindlassConfig(AppConfig):
    """Finds the `jobs` module of every installed app, so that workers know all handlers."""

    name = "windlass.contrib.django"
    label = "windlass"
    verbose_name = "Windlass"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import them."""
        autodiscover_modules("jobs")
