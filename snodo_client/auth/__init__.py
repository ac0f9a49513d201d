"""Credentials for servers that ask for them: `Client.connect(url, auth=OAuth())`.

Imported only by programs that use it. What signs with keys needs the extra "oauth", the keyring of the system the
extra "keyring".
"""

from __future__ import annotations

from ..protocol.challenges import Challenge
from ..transports.http_signing import TokenProvider
from .file_store import FileTokenStore
from .grants import EnterpriseManaged, WorkloadIdentity
from .keyring_store import KeyringTokenStore
from .oauth import OAuth, SignIn
from .stores import MemoryTokenStore, TokenStore

__all__ = [
    "Challenge",
    "EnterpriseManaged",
    "FileTokenStore",
    "KeyringTokenStore",
    "MemoryTokenStore",
    "OAuth",
    "SignIn",
    "TokenProvider",
    "TokenStore",
    "WorkloadIdentity",
]
