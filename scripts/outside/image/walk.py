"""Starts the variants of docker-compose.yml and uses them."""

import fcntl
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import urllib.error
import urllib.request

from image import compose, provider
from image.compose import Container, Machine, until

ROOT = pathlib.Path(os.environ["ROOT"])
SERVICE, GATEWAY = "http://127.0.0.1:7420", "http://127.0.0.1:7421"
TEXT = "We chose PostgreSQL as the database for billing."
QUERY = "which database did we choose for billing?"
# Fixed by the image.
OF_THE_IMAGE = {"DB_PATH", "CONTEXT_SOCKET"}
# Only for a gateway that starts its service, or that serves stdio.
OF_A_LOCAL_GATEWAY = {"DB_PATH", "CONTEXT_SOCKET", "STORAGE_BACKEND", "CONTEXT_API_KEY", "CONTEXT_API_KEY_FILE"} | {
    f"POSTGRESQL_{name}" for name in ("CONNECTION_STRING", "HOST", "PORT", "USER", "DATABASE")
}


MCP = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
# Without the proxy that apt may need.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def say(text):
    print(f"image: {text}", flush=True)


def loopback():
    """Switches the loopback device of this network on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        # SIOCSIFFLAGS with IFF_UP
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))


def call(method, url, body=None, headers=None):
    """The status and the JSON body of a response."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})}, method=method)
    try:
        with OPENER.open(request, timeout=60) as response:
            status, text = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    return status, json.loads(text) if text[:1] in (b"{", b"[") else text.decode()


def mcp(method, params):
    status, reply = call("POST", f"{GATEWAY}/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, MCP)
    assert status == 200 and "result" in reply, (method, status, reply)
    return reply["result"]


def tool(name, arguments):
    result = mcp("tools/call", {"name": name, "arguments": arguments})
    assert not result.get("isError"), result
    return json.loads(result["content"][0]["text"])


def search(thread):
    return call("POST", f"{SERVICE}/v1/contexts/search/semantic", {"query": QUERY, "thread_id": thread})


def use(thread):
    """Stores through REST and finds by semantic search; then the same through the gateway."""
    for text in ("The cat sleeps on the sofa.", TEXT):
        status, reply = call("POST", f"{SERVICE}/v1/contexts", {"thread_id": thread, "source": "agent", "text": text})
        assert status in (200, 201), (status, reply)

    def found():
        status, reply = search(thread)
        return status == 200 and len(reply["results"]) == 2 and reply["results"]

    hits = until("semantic search finds both entries", found)
    assert hits[0]["text_content"] == TEXT, hits
    listed = {entry["name"] for entry in mcp("tools/list", {})["tools"]}
    assert {"store_context", "semantic_search_context"} <= listed, listed
    tool("store_context", {"thread_id": f"{thread}-mcp", "source": "agent", "text": TEXT})
    arguments = {"query": QUERY, "thread_id": f"{thread}-mcp"}
    hits = until("the gateway finds it", lambda: tool("semantic_search_context", arguments)["results"])
    assert hits[0]["text_content"] == TEXT, hits


def settings_named_in(page):
    """The variables of the tables of a page."""
    return set(re.findall(r"^\| `([A-Z][A-Z_]+)` \| `--", (ROOT / "docs" / page).read_text(), re.MULTILINE))


def override():
    """The docker-compose.override.yml of docs/operations.md that adds an authority."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/operations.md").read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "SSL_CERT_FILE" in block]
    return block


class Walk:
    def __init__(self, image, scratch):
        self.image = image
        self.project = compose.project(ROOT, scratch / "project")
        variants = {profile: compose.resolve(self.project, profile=profile) for profile in ("embedded", "postgres", "external")}
        self.variants = variants
        names = [name for services in variants.values() for name in services]
        self.machine = Machine(image, scratch, [*names, provider.HOST])

    def container(self, services, name):
        return Container(self.machine, name, services[name])

    def files(self):
        """A plain `up` starts the embedded variant. Variants share no container, and every setting is passed on."""
        assert compose.resolve(self.project).keys() == self.variants["embedded"].keys() == {"context-service", "gateway"}
        everything = [name for services in self.variants.values() for name in services]
        assert len(everything) == len(set(everything)), everything
        of_the_service = settings_named_in("configuration.md") - OF_THE_IMAGE
        of_the_gateway = settings_named_in("gateway.md") - OF_A_LOCAL_GATEWAY
        assert len(of_the_service) > 50 and len(of_the_gateway) > 10, "the tables of settings were not found"
        for profile, services in self.variants.items():
            ports = [port for service in services.values() for port in service.get("ports") or []]
            assert sorted(port["published"] for port in ports) == ["7420", "7421"], (profile, ports)
            assert {port["host_ip"] for port in ports} == {"127.0.0.1"}, (profile, ports)
            for name, service in services.items():
                passed = set(service.get("environment") or {})
                if service.get("build"):
                    missing = of_the_service - passed
                elif name.startswith("gateway"):
                    missing = of_the_gateway - passed
                else:
                    continue
                assert not missing, f"docker-compose.yml: {name} does not pass on {sorted(missing)}"
                removed = passed & self.image.env.keys()
                assert not removed, f"docker-compose.yml: {name} removes the image's {sorted(removed)} where they are unset"
        passed = compose.resolve(self.project, {"ENABLE_FTS": "false"})["context-service"]["environment"]
        assert passed["ENABLE_FTS"] == "false" and passed["ENABLE_HYBRID_SEARCH"] is None, passed
        say("a plain up starts the embedded variant; the variants pass on every setting and publish the same two ports")

    def fetched(self):
        """The quick start with a model inside the service."""
        services = compose.resolve(self.project)
        service = self.container(services, "context-service").up().wait_healthy()
        status, reply = search("none")
        assert reply["reason"] == "FEATURE_UNAVAILABLE", (status, reply)
        service.down()

        settings = {"HF_ENDPOINT": f"https://{provider.HOST}:{provider.PORT}"}
        status, output = self.container(compose.resolve(self.project, settings), "context-service").run(["fetch-model"])
        assert status != 0, f"fetch-model trusted an unknown authority: {output}"
        self.trust()
        services = compose.resolve(self.project, settings)
        status, output = self.container(services, "context-service").run(["fetch-model"])
        assert status == 0 and "/cache/context-service/models" in output, output
        say("fetch-model writes into the model volume as the image's user, and trusts the added authority")

        service = self.container(services, "context-service").up().wait_healthy()
        gateway = self.container(services, "gateway").up().wait_healthy()
        use("embedded")
        status, reply = call("GET", f"{GATEWAY}/healthz")
        assert status == 200, (status, reply)
        service.down()
        assert not gateway.healthy(), "the gateway is healthy without a service"
        again = self.container(services, "context-service").up().wait_healthy()
        gateway.wait_healthy()
        assert len(search("embedded")[1]["results"]) == 2, "a new container has lost the entries"
        again.down()
        gateway.down()
        say("embedded: stores and searches with the fetched model; the gateway is healthy while the service is")

    def trust(self):
        """Adds the authority as docs/operations.md says."""
        (self.project / "docker-compose.override.yml").write_text(override())
        shutil.copy(self.authority / "own-ca.pem", self.project)

    def provided(self):
        """The quick start with an HTTPS provider."""
        settings = {
            "EMBEDDING_PROVIDER": "openai",
            "EMBEDDING_URL": f"https://{provider.HOST}:{provider.PORT}/v1",
            "EMBEDDING_API_KEY": provider.KEY,
            "EMBEDDING_MODEL": "words",
            "ENABLE_FTS": "false",
        }
        (self.machine.scratch / "volumes/contexts").rename(self.machine.scratch / "volumes/contexts-of-the-model")
        # This time the authority is one of the image's own, as the public ones are.
        (self.project / "docker-compose.override.yml").unlink()
        services = compose.resolve(self.project, settings)
        service = self.container(services, "context-service")
        bundle = service.root / "etc/ssl/certs/ca-certificates.crt"
        public = bundle.read_text()
        bundle.unlink()
        bundle.write_text(public + (self.authority / "own-ca.pem").read_text())
        service.up().wait_healthy()
        gateway = self.container(services, "gateway").up().wait_healthy()
        use("provided")
        status, reply = call("POST", f"{SERVICE}/v1/contexts/search/fts", {"query": "billing"})
        assert reply["reason"] == "FEATURE_UNAVAILABLE", (status, reply)
        service.down()
        gateway.down()
        say("embedded: searches with an HTTPS provider whose certificate the image trusts; ENABLE_FTS=false arrives")

    def keys(self):
        """With AUTH=keys nothing is open, and the containers are healthy all the same."""
        services = compose.resolve(self.project, {"AUTH": "keys"})
        service = self.container(services, "context-service").up().wait_healthy()
        gateway = self.container(services, "gateway").up().wait_healthy()
        assert call("GET", f"{SERVICE}/v1/threads")[0] == 401
        assert call("POST", f"{GATEWAY}/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, MCP)[0] == 401
        status, resource = call("GET", f"{GATEWAY}/.well-known/oauth-protected-resource/mcp")
        assert (status, resource["resource"]) == (200, f"{GATEWAY}/mcp"), (status, resource)
        status, output = service.exec("context-service", "keys", "create", "laptop")
        assert status == 0, output
        (key,) = set(re.findall(r"sk_[\w-]+", output))
        status, reply = call("GET", f"{SERVICE}/v1/threads", headers={"authorization": f"Bearer {key}"})
        assert status == 200, (status, reply)
        service.down()
        gateway.down()
        say("embedded: AUTH=keys arrives at service and gateway")

    def postgres(self):
        services = compose.resolve(self.project, profile="postgres")
        environment = services["postgres"]["environment"]
        server = Postgres(environment)
        service = self.container(services, "service-on-postgres").up().wait_healthy()
        gateway = self.container(services, "gateway-on-postgres").up().wait_healthy()
        use("shared")
        service.down()
        gateway.down()
        say("postgres: stores and searches")
        return server

    def external(self):
        services = compose.resolve(self.project, profile="external")
        waits = services["service-on-external"]["depends_on"]["postgresql-connection-string"]["condition"]
        assert waits == "service_completed_successfully", waits
        status, output = self.container(services, "postgresql-connection-string").run()
        assert status != 0 and "POSTGRESQL_CONNECTION_STRING is not set" in output, (status, output)
        settings = {"POSTGRESQL_CONNECTION_STRING": "postgresql://postgres:postgres@postgres:5432/mcp_context"}
        services = compose.resolve(self.project, settings, "external")
        assert self.container(services, "postgresql-connection-string").run() == (0, "")
        service = self.container(services, "service-on-external").up().wait_healthy()
        gateway = self.container(services, "gateway-on-external").up().wait_healthy()
        assert len(search("shared")[1]["results"]) == 2
        use("external")
        service.down()
        gateway.down()
        say("external: refused without an address; with one it finds what the other variant stored")


class Postgres:
    """The server of the postgres service, as its image would start it."""

    def __init__(self, environment):
        programs = pathlib.Path(os.environ["CONTEXT_TEST_POSTGRES_BIN"])
        home = pathlib.Path(tempfile.mkdtemp(dir=os.environ["POSTGRES_STATE"]))
        password = home / "password"
        password.write_text(environment["POSTGRES_PASSWORD"])
        shutil.chown(home, 65534, 65534)

        as_nobody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": home, "stderr": subprocess.STDOUT}

        def run(*argv, **options):
            ran = subprocess.run([str(word) for word in argv], stdout=subprocess.PIPE, text=True, timeout=120, **as_nobody, **options)
            assert ran.returncode == 0, ran.stdout

        data = home / "data"
        encoding = ["-E", "UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        access = ["-U", environment["POSTGRES_USER"], "-A", "scram-sha-256", "--pwfile", password]
        run(programs / "initdb", "-D", data, *access, *encoding, "--no-sync")
        create = f"CREATE DATABASE {environment['POSTGRES_DB']}\n"
        run(programs / "postgres", "--single", "-D", data, "postgres", input=create)
        listen = ["-p", "5432", "-h", "127.0.0.1", "-k", "", "-c", "fsync=off"]
        with (home / "log").open("wb") as log:
            self.process = subprocess.Popen([programs / "postgres", "-D", data, *listen], stdout=log, **as_nobody)

        def listens():
            with socket.socket() as client:
                client.settimeout(5)
                return client.connect_ex(("127.0.0.1", 5432)) == 0

        until("PostgreSQL listens", listens)

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def walk(image, scratch):
    loopback()
    walker = Walk(image, scratch)
    walker.files()
    walker.authority = provider.authority(image)
    provider.serve(walker.authority)
    walker.fetched()
    walker.provided()
    walker.keys()
    server = walker.postgres()
    walker.external()
    server.stop()
