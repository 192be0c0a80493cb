"""Take the address that a server listens on, and check its certificate."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

from windlass.config import ServerConfig
from windlass.errors import InvalidValue, must_be

BACKLOG = 2048


def bound(config: ServerConfig) -> socket.socket:
    """The address, taken before anything else, so that an error is reported at once."""
    check_certificate(config)
    listener, address = _opened(config, config.port)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        shown = f"{config.host}:{config.port}"
        raise must_be("port", shown, f"an address that is free ({error.strerror})") from None
    listener.listen(BACKLOG)
    return listener


def check(config: ServerConfig) -> None:
    """Refuse what `bound` refuses, but for a port in use: the server that is to be restarted may have it."""
    check_certificate(config)
    listener, address = _opened(config, 0)
    with contextlib.closing(listener):
        try:
            listener.bind(address)
        except OSError as error:
            raise _not_ours(config, error) from None


def check_certificate(config: ServerConfig) -> None:
    """Refuse a certificate or key that cannot be read, or that do not belong together."""
    if config.tls_cert is None:
        return
    for field, name in (("tls_cert", config.tls_cert), ("tls_key", config.tls_key)):
        if name is not None:
            _check_readable(field, name)
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


def _opened(config: ServerConfig, port: int) -> tuple[socket.socket, tuple[object, ...]]:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _not_ours(config, error) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return listener, address


def _not_ours(config: ServerConfig, error: OSError) -> InvalidValue:
    return must_be("host", config.host, f"an address of this machine ({error.strerror})")


def _check_readable(field: str, name: str) -> None:
    try:
        with Path(name).open("rb"):
            pass
    except OSError as error:
        raise must_be(field, name, f"a file that can be read ({error.strerror})") from None
