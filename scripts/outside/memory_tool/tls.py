"""Checks that the memory tool's client trusts, over TLS, the authority that it is given, and no other.

    python3 tls.py https://localhost:PORT authority.pem
"""

import ssl
import sys

import httpx
from memory_tool import connect

url, authority = sys.argv[1:]


def responds(**options):
    """Whether the service responds. False if its certificate is not trusted."""
    with connect(url, **options) as client:
        try:
            client.get_httpx_client().get("/v1/threads").raise_for_status()
            return True
        except httpx.ConnectError as error:
            assert "certificate" in str(error).lower(), error
            return False


trusted = ssl.create_default_context(cafile=authority)
assert responds(verify=trusted)
assert not responds()
try:
    connect(url.replace("https://", "http://"), verify=trusted)
    raise AssertionError("a client in plain text, although an authority was given")
except ValueError:
    pass
print("python: the memory tool connects over TLS")
