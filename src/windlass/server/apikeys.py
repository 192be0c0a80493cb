"""How are API keys made and ended over HTTP?"""

from __future__ import annotations

from datetime import timedelta

from windlass.duration import parse_duration
from windlass.ops.document import api_key_document
from windlass.ops.keys import KeyWish
from windlass.server.call import Call
from windlass.server.identity import Need
from windlass.server.reply import Reply
from windlass.server.routes import look, verb
from windlass.server.schemas.access import KeyDocument, KeyForm, KeysDocument, NewKeyDocument


async def create_key(call: Call) -> Reply:
    """Make an API key; it is shown now and never again."""
    form = await call.body(KeyForm)
    wish = KeyWish(
        name=form.name,
        roles=form.roles,
        types=form.types,
        tenant=form.tenant,
        rate=form.rate,
        lasts=None if form.expires is None else parse_duration(form.expires, "expires"),
    )
    key, secret = await call.run(call.parts.ops(call.identity).create_key, wish, why=form.why)
    await call.run(call.parts.keyring.look)
    return Reply(201, api_key_document(key) | {"key": secret})


async def list_keys(call: Call) -> Reply:
    """Every API key, the newest first, ended ones too."""
    found = await call.run(call.parts.ops().keys)
    return Reply(200, {"keys": [api_key_document(key) for key in found]})


async def revoke_key(call: Call) -> Reply:
    """End an API key, now or after a time in which another one takes over."""
    after = call.one("after")
    span = timedelta(0) if after is None else parse_duration(after, "after")
    why = call.one("why") or ""
    key = await call.run(call.parts.ops(call.identity).revoke_key, call.path["id"], after=span, why=why)
    await call.run(call.parts.keyring.look)
    return Reply(200, api_key_document(key))


ROUTES = (
    verb(
        "keys",
        create_key,
        "Make an API key",
        KeyForm,
        {201: NewKeyDocument},
        need=Need.ADMINISTER,
        refuses=(413, 415),
    ),
    look("keys", list_keys, "List API keys", KeysDocument, need=Need.ADMINISTER),
    verb(
        "keys/{id}",
        revoke_key,
        "Revoke an API key",
        None,
        {200: KeyDocument},
        method="DELETE",
        need=Need.ADMINISTER,
        query={"after": "Let it be valid so long yet, such as 1d.", "why": "For the records."},
        refuses=(404,),
    ),
)
