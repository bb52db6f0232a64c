"""Opens the connection to a service: in plain text, or with TLS to a proxy in front of it."""

import grpc


def open_channel(address, options=None, *, root_certificates=None):
    """A channel to `host:port` or `http://host:port` in plain text, or to `https://host:port` with TLS.

    `root_certificates` are the authorities to trust, as PEM bytes; with them `host:port` means TLS too. By default,
    gRPC trusts those in the file that GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names, else those in its own list.
    """
    scheme, _, target = address.partition("://")
    if (scheme := scheme.lower()) not in ("http", "https"):  # No URL, or one such as unix:///run/context.sock.
        scheme, target = "http" if root_certificates is None else "https", address
    elif "/" in (target := target.removesuffix("/")):
        raise ValueError(f"{address} has a path, but gRPC is served at the root; write {scheme}://host:port")
    if scheme == "https":
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(root_certificates), options)
    if root_certificates is not None:
        raise ValueError(f"root_certificates are for TLS, but {address} is plain text; write https://host:port")
    return grpc.insecure_channel(target, options)
