"""Take the address that a server listens on, and check its certificate."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from windlass.config import ServerConfig
from windlass.errors import must_be

BACKLOG = 2048


def bound(config: ServerConfig) -> socket.socket:
    """The address, taken before anything else, so that an error is reported at once."""
    listener = _bound(config, config.port)
    listener.listen(BACKLOG)
    return listener


def check(config: ServerConfig) -> None:
    """Refuse what `bound` refuses, but for a port in use: the server that is to be restarted may have it."""
    _bound(config, 0).close()


def _bound(config: ServerConfig, port: int) -> socket.socket:
    check_certificate(config)
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        if listener is not None:
            listener.close()
        if listener is not None and port:
            allowed = f"an address that is free ({error.strerror})"
            raise must_be("port", f"{config.host}:{port}", allowed) from None
        raise must_be("host", config.host, f"an address of this machine ({error.strerror})") from None
    return listener


def check_certificate(config: ServerConfig) -> None:
    """Refuse a certificate or key that cannot be read, or that do not belong together."""
    if config.tls_cert is None:
        return
    for field, name in (("tls_cert", config.tls_cert), ("tls_key", config.tls_key)):
        try:
            if name is not None:
                Path(name).open("rb").close()
        except OSError as error:
            raise must_be(field, name, f"a file that can be read ({error.strerror})") from None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without a password here, one would be asked for on the terminal.
        context.load_cert_chain(config.tls_cert, config.tls_key, password="")
    except (ssl.SSLError, OSError) as error:
        why = getattr(error, "reason", None) or error.strerror or str(error)
        allowed = f"a certificate with its key, in PEM and not encrypted ({why})"
        raise must_be("tls_cert", config.tls_cert, allowed) from None


def shown_address(config: ServerConfig, listener: socket.socket) -> str:
    """Where it can be reached."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    scheme = "https" if config.tls_cert else "http"
    return f"{scheme}://{host}:{listener.getsockname()[1]}"
