"""A proxy with TLS in front of a service, with the certificate of the tests for localhost.

    python3 tls_proxy.py PORT HOST:PORT
"""

import asyncio
import pathlib
import ssl
import sys

CERTIFICATES = pathlib.Path(__file__).parents[2] / "services/store-postgres/tests/it/tls"


async def copy(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # One of the two has closed the connection.
    finally:
        writer.close()


async def main(port, host, service_port):
    async def serve(reader, writer):
        try:
            from_service, to_service = await asyncio.open_connection(host, service_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, to_service), copy(from_service, writer))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    context.set_alpn_protocols(["h2", "http/1.1"])  # gRPC refuses a server that does not negotiate h2.
    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=context)
    await server.serve_forever()


asyncio.run(main(int(sys.argv[1]), *sys.argv[2].rsplit(":", 1)))
