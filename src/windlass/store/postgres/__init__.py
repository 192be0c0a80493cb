"""A store in a PostgreSQL database; importing it needs the driver."""

from windlass.store.postgres import address, guests, schema, store, target

__all__ = ["address", "guests", "schema", "store", "target"]
