"""Checks how the adapters of clients/python connect over TLS: to a certificate that they are told to trust, and to no
other.

    python3 tls_adapters.py https://localhost:PORT authority.pem
"""

import pathlib
import sys

import grpc
from context.v1 import context_service_pb2 as pb
from service import Service

url, authority = sys.argv[1:]
address = url.removeprefix("https://")
certificates = pathlib.Path(authority).read_bytes()


def answers(address, **options):
    """Whether a service at this address answers."""
    service = Service(address, **options)
    try:
        service.read(service.contexts.ListThreads, pb.ListThreadsRequest())
        return True
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE, error
        return False
    finally:
        service.close()


def is_refused(address, **options):
    """Whether the address cannot be one of a service, so that no connection is tried."""
    try:
        Service(address, **options).close()
        return False
    except ValueError:
        return True


for trusted in (url, f"{url}/", url.replace("https", "HTTPS"), address):
    assert answers(trusted, root_certificates=certificates), trusted
assert not answers(url), "the certificate is signed by an unknown authority"
assert not answers(address), "plain text to a port with TLS"
assert is_refused(f"http://{address}", root_certificates=certificates)
assert is_refused(f"{url}/v1")
print("python: the adapters connect over TLS")
