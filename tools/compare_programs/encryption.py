"""What ranks over an encrypted transport need: a certificate for Gloo's TLS, a key file for our sealed datagrams. Both
are made for one run, in a folder that goes with it.
"""

import secrets
from pathlib import Path

from gloo_bypass_tools.common import transports
from gloo_bypass_tools.common.failures import Failure
from gloo_bypass_tools.common.processes import ask, errors_of

MAKE_S = 60


class EncryptionError(Failure):
    """No certificate; the text is one line."""


def key_file(folder):
    """As docs/security.md makes one."""
    path = Path(folder) / "key"
    path.touch(mode=0o600)
    path.write_text(secrets.token_hex(32) + "\n")
    return {"GLOO_BYPASS_KEY_FILE": path}


def certificate(folder):
    """One for all ranks, signed by itself: each checks the others' against it."""
    key, path = Path(folder) / "tls.key", Path(folder) / "tls.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    try:
        done = ask([*words, "-keyout", key, "-out", path], MAKE_S)
    except OSError as error:
        raise EncryptionError(f"{transports.TLS} needs a certificate: cannot run openssl: {error.strerror}") from error
    if done.returncode != 0:
        raise EncryptionError(f"{transports.TLS} needs a certificate: openssl req: {errors_of(done)[-1]}")
    files = {"PKEY": key, "CERT": path, "CA_FILE": path}
    return {f"GLOO_DEVICE_TRANSPORT_TCP_TLS_{name}": file for name, file in files.items()}


def settings(names, folder):
    """{transport: further settings of its ranks}, of those among `names` that encrypt."""
    made = {transports.TLS: certificate(folder)} if transports.TLS in names else {}
    sealed = list(filter(transports.is_sealed, names))
    return made | (dict.fromkeys(sealed, key_file(folder)) if sealed else {})
