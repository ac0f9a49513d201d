"""What stands for values that must not be shown or are too long: a hash that tells two of them apart, and no more."""

from __future__ import annotations

from hashlib import sha256


def fingerprint(*parts: bytes | str) -> bytes:
    """32 bytes that are the same for the same parts in the same order, and for nothing else."""
    whole = sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        whole.update(b"%d:" % len(data))
        whole.update(data)
    return whole.digest()


def machine() -> bytes:
    """The same for one user of one machine, as far as they can be told: what is local to another is another thing."""
    import os
    from socket import gethostname

    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    return fingerprint(gethostname(), str(user))
