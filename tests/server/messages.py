"""How does a test read HTTP from a socket? Message by message: one `recv` may bring a part of it."""

from __future__ import annotations

import contextlib
import socket


def one_message(line: socket.socket) -> bytes:
    """One request or answer, by its Content-Length; less than that if the other side closes.

    What comes behind it is left for the next call.
    """
    head = b""
    while not head.endswith(b"\r\n\r\n") and (byte := line.recv(1)):
        head += byte
    lines = head.lower().split(b"\r\n")
    length = next((int(each[15:]) for each in lines if each.startswith(b"content-length:")), 0)
    body = b""
    while len(body) < length and (chunk := line.recv(length - len(body))):
        body += chunk
    return head + body


def everything(line: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := line.recv(65_536):
            data += chunk
    return data
