"""The account file in the Secret: TOML, with the names that Crusoe's own command line uses.

access_key_id = "..."
secret_key = "..."
project_id = "..."                     # UUID of the project to rent in
ssh_public_key = "ssh-ed25519 ..."     # optional: who may log in to the machines
"""

import tomllib
from functools import cache
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from forebay.providers.base import BadCredentials

_PROFILE: Final = "default"
_NEEDED: Final = ("access_key_id", "secret_key", "project_id")


class CrusoeAccount(msgspec.Struct, frozen=True, kw_only=True):
    access_key_id: str
    secret_key: str
    project_id: str
    ssh_public_key: str = ""

    def __repr__(self) -> str:
        return f"CrusoeAccount({self.project_id})"


@cache
def read_account(text: str) -> CrusoeAccount:
    """The account of the file's text. Raises `BadCredentials`."""
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise BadCredentials(f"The Secret's account file is not TOML. Write {', '.join(_NEEDED)} into it.") from None
    profile = found.get(_PROFILE)
    fields = {**found, **profile} if isinstance(profile, dict) else found
    missing = [name for name in _NEEDED if not isinstance(fields.get(name), str) or not fields[name].strip()]
    if missing:
        raise BadCredentials(f"The Secret's account file lacks {' and '.join(missing)}. Add it.")
    return CrusoeAccount(
        access_key_id=fields["access_key_id"].strip(),
        secret_key=fields["secret_key"].strip(),
        project_id=fields["project_id"].strip(),
        ssh_public_key=str(fields.get("ssh_public_key", "")).strip(),
    )


@cache
def nobodys_public_key() -> str:
    """A public key whose private half was never kept: Crusoe requires one, and Forebay logs in nowhere."""
    public = ed25519.Ed25519PrivateKey.generate().public_key()
    text = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{text.decode()} forebay"
