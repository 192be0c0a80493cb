"""Settings and addresses of a small Django project."""

from pathlib import Path

from django.urls import path

BASE_DIR = Path(__file__).resolve().parent
SECRET_KEY = "only for this example"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "project"
USE_TZ = True
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "project.db"}}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "windlass.contrib.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# Where the jobs are: a file of their own, or the database that the rest is in.
WINDLASS = {"DATABASE_URL": "sqlite:///jobs.db"}


def _addresses() -> list[object]:
    from django.contrib import admin  # noqa: PLC0415 - settings are read before apps are there
    from shop.views import place  # noqa: PLC0415

    return [path("admin/", admin.site.urls), path("orders/<int:number>/", place)]


def __getattr__(name: str) -> object:
    """The addresses, once Django asks for them."""
    if name == "urlpatterns":
        return _addresses()
    raise AttributeError(name)
