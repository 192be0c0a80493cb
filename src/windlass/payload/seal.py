"""Stored payloads with encrypted fields, or with a reference to data that is kept elsewhere.

AES-256-GCM; a sealed field reads `{"$encrypted": "key.data"}`. The job's id and the field's name are part of
what is authenticated, so that a sealed text cannot be moved to another job or field.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.errors import InvalidPayload, KeyMissing, must_be
from windlass.job import REFERENCE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MARK = "$encrypted"
HIDDEN = "(encrypted)"

_KEY_BYTES = 32
MAX_REFERENCE = 2_048
_NONCE_BYTES = 12
SEAL = f'"{MARK}"'.encode()


class Ring:
    """The keys that this process has. The first one seals, all of them open: that is how keys are changed."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """Each key is 32 random bytes in base64, as `openssl rand -base64 32` makes them."""
        secrets = [read_key(key) for key in keys]
        self._ciphers = {hashlib.sha256(secret).hexdigest()[:8]: _cipher(secret) for secret in secrets}
        self._first = next(iter(self._ciphers), "")
        # By the oldest key, so that a new one in front does not make a repeated request look different.
        self._stamp = secrets[-1] if secrets else b""

    def __bool__(self) -> bool:
        return bool(self._ciphers)

    def seal(self, payload: bytes, fields: Sequence[str], job_id: str) -> bytes:
        """A payload with these fields sealed; those that are sealed already stay as they are."""
        content: dict[str, Any] = msgspec.json.decode(payload)
        for name in fields:
            if name in content and not is_sealed(content[name]):
                content[name] = {MARK: self._closed(content[name], name, job_id)}
        return msgspec.json.encode(content, order="deterministic")

    def open(self, payload: dict[str, Any], job_id: str) -> dict[str, Any]:
        """The same payload in the clear; KeyMissing if we do not have the key, InvalidPayload if it lies."""
        return {
            name: self._opened(value[MARK], name, job_id) if is_sealed(value) else value
            for name, value in payload.items()
        }

    def stamp(self, payload: bytes) -> str:
        """What a repeated request is recognised by: sealed twice, one payload gives two texts."""
        self._demand()
        return hmac.new(self._stamp, payload, hashlib.sha256).hexdigest()

    def _closed(self, value: object, name: str, job_id: str) -> str:
        self._demand()
        nonce = os.urandom(_NONCE_BYTES)
        data = self._ciphers[self._first].encrypt(nonce, msgspec.json.encode(value), _place(job_id, name))
        return f"{self._first}.{base64.urlsafe_b64encode(nonce + data).decode()}"

    def _opened(self, sealed: str, name: str, job_id: str) -> Any:
        key, _, text = sealed.partition(".")
        cipher = self._ciphers.get(key)
        if cipher is None:
            have = ", ".join(self._ciphers) or "none"
            raise KeyMissing(f"payload.{name} is encrypted with the key {key}, and this process has: {have}")
        try:
            data = base64.urlsafe_b64decode(text)
            clear = cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _place(job_id, name))
        except Exception:  # noqa: BLE001 # wall: whatever the library says of a text that was tampered with
            problem = "cannot be decrypted: it was changed, or belongs to another job or field"
            raise InvalidPayload(f"payload.{name} {problem}") from None
        return msgspec.json.decode(clear)

    def _demand(self) -> None:
        if not self._ciphers:
            raise KeyMissing(
                "a field of the payload is to be encrypted, and there is no key: set WINDLASS_ENCRYPTION_KEYS"
                " (`openssl rand -base64 32` makes one)"
            )


def has_seal(payload: bytes | msgspec.Raw) -> bool:
    """Whether any field is sealed; quick, for the many payloads that have none."""
    return SEAL in bytes(payload)


def is_sealed(value: object) -> bool:
    """Whether a field's value is a sealed one."""
    return isinstance(value, Mapping) and value.keys() == {MARK} and isinstance(value[MARK], str)


def shown(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A payload as people may see it."""
    return {name: HIDDEN if is_sealed(value) else value for name, value in payload.items()}


def restored(edited: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A payload that was edited as shown: what was left hidden is what it was before."""
    return {
        name: before[name] if value == HIDDEN and is_sealed(before.get(name)) else value
        for name, value in edited.items()
    }


def refuse_lookalikes(payload: bytes, job_type: str) -> None:
    """Nobody but us writes the mark, so that what is sealed can be told from what is not."""
    if SEAL not in payload:
        return
    for name, value in msgspec.json.decode(payload).items():
        if is_sealed(value):
            raise InvalidPayload(f"{job_type}: payload.{name} must not be an object with {MARK} alone")


def _place(job_id: str, name: str) -> bytes:
    return f"{job_id}\0{name}".encode()


def read_key(key: str) -> bytes:
    """The bytes of a key that is written in base64; InvalidValue if it is none."""
    try:
        secret = base64.b64decode(key.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != _KEY_BYTES:
        allowed = f"{_KEY_BYTES} random bytes in base64, as `openssl rand -base64 {_KEY_BYTES}` makes them"
        raise must_be("encryption_keys", HIDDEN, allowed)
    return secret


def _cipher(secret: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError:
        why = "left out, or the library installed: pip install 'windlass[crypto]'"
        raise must_be("encryption_keys", HIDDEN, why) from None
    return AESGCM(secret)


# --- a reference beside the payload -------------------------------------------------------------


def check_reference(value: object) -> str:
    """A reference, such as a URL or a key of object storage, or InvalidValue."""
    good = isinstance(value, str) and 1 <= len(value) <= MAX_REFERENCE and value.isprintable()
    if not isinstance(value, str) or not good:
        raise must_be("payload_ref", value, f"a printable text of 1 to {MAX_REFERENCE} characters")
    return value


def with_reference(payload: bytes, reference: str) -> bytes:
    """A payload that carries a reference beside the handler's own fields."""
    content: dict[str, Any] = msgspec.json.decode(payload)
    return msgspec.json.encode({**content, REFERENCE: reference}, order="deterministic")


def split_reference(payload: bytes) -> tuple[bytes, str | None]:
    """The handler's own fields of a payload, and the reference beside them, if there is one."""
    if REFERENCE.encode() not in payload:
        return payload, None
    content: dict[str, Any] = msgspec.json.decode(payload)
    reference: str | None = content.pop(REFERENCE, None)
    return msgspec.json.encode(content), reference
