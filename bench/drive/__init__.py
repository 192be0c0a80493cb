"""The half that runs in a peer's own environment: nothing but the standard library is imported here."""
