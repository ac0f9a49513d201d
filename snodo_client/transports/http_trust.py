"""Whom a TLS connection trusts: the system's store, a bundle of the caller or the environment, or nobody in particular.

requests trusts the bundle it came with, where a company's own authority is missing. Here the store of the system is
the default, and that bundle only a stand-in on systems without one.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

from ..outcome import local_error

if TYPE_CHECKING:
    from ..outcome import McpError


def trust(verify: bool | str, cert: str | tuple[str, str] | None) -> ssl.SSLContext:
    """The context for *verify* (True: the system's store; a path: that file or folder; False: anybody) with the client
    certificate *cert* (a file with its key, or a file and a key file). Raises McpError "tls" for unusable files.
    """
    error: McpError | None = None
    try:
        context = _context(verify)
    except OSError:
        error = local_error("tls", f"the CA certificates in {verify} cannot be loaded")
    if error is None and cert is not None:
        file, key = (cert, None) if isinstance(cert, str) else cert
        try:
            context.load_cert_chain(file, key, _no_password)
        except (OSError, ValueError):
            error = local_error("tls", f"the client certificate in {file} cannot be loaded")
    if error is not None:
        raise error
    return context


def _context(verify: bool | str) -> ssl.SSLContext:
    if verify is False:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if isinstance(verify, str):
        folder = os.path.isdir(verify)
        return ssl.create_default_context(cafile=None if folder else verify, capath=verify if folder else None)
    context = ssl.create_default_context()
    if not _system_has_a_store(context):
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def _system_has_a_store(context: ssl.SSLContext) -> bool:
    paths = ssl.get_default_verify_paths()
    if paths.openssl_cafile_env in os.environ or paths.openssl_capath_env in os.environ:
        return True  # somebody decided; what is not in there is not trusted
    folder = paths.capath
    return context.cert_store_stats()["x509_ca"] > 0 or (folder is not None and bool(os.listdir(folder)))


def _no_password() -> str:
    raise ValueError("an encrypted key needs a password, and nobody is there to type it")
