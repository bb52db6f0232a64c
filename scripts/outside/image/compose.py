"""The containers of docker-compose.yml, as Compose resolves it, in copies of the image's root file system."""

import json
import os
import pathlib
import shutil
import subprocess
import time

from image import dockerfile


def resolve(project, settings=None, profile=None):
    """The services, as `docker compose config` prints them, with these variables in the shell."""
    argv = [os.environ["COMPOSE"]]
    argv += ["--profile", profile] if profile else []
    env = {"PATH": os.environ["PATH"], "HOME": str(project), **(settings or {})}
    ran = subprocess.run([*argv, "config", "--format", "json"], cwd=project, env=env, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr, f"docker-compose.yml: {ran.stderr}"
    return json.loads(ran.stdout)["services"]


def literal(value):
    """`config` prints a dollar sign as two, so that its output can be read again."""
    return value.replace("$$", "$")


def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True, timeout=60)


class Machine:
    """What containers share: the image, the volumes, the names in the network."""

    def __init__(self, image, scratch, names):
        self.image, self.scratch = image, scratch
        self.hosts = "127.0.0.1 " + " ".join(["localhost", *names]) + "\n"
        self.containers = 0
        (scratch / "volumes").mkdir()

    def volume(self, name, target):
        """A new volume is a copy of the image's directory, with its owner and mode, as in Docker. If the image has
        none, it is an empty directory of root."""
        directory = self.scratch / "volumes" / name
        if not directory.exists():
            model = pathlib.Path(self.image.root, target.lstrip("/"))
            if model.is_dir():
                subprocess.run(["cp", "-a", model, directory], check=True, timeout=dockerfile.COPY_S)
            else:
                directory.mkdir(mode=0o755)
        return directory


class Container:
    """One container. Its environment is the image's with that of the service, where a null removes a variable."""

    def __init__(self, machine, name, service):
        self.machine, self.name, self.service = machine, name, service
        machine.containers += 1
        self.root = machine.scratch / f"{machine.containers}-{name}"
        # Links: nothing in the containers runs as root, so no file of the image changes.
        subprocess.run(["cp", "-al", machine.image.root, self.root], check=True, timeout=dockerfile.COPY_S)
        hosts = self.root / "etc/hosts"
        hosts.unlink(missing_ok=True)
        hosts.write_text(machine.hosts)
        for device in ("null", "zero", "random", "urandom"):
            (self.root / "dev" / device).unlink(missing_ok=True)
            (self.root / "dev" / device).touch()
            mount("--bind", f"/dev/{device}", self.root / "dev" / device)
        mount("-t", "proc", "proc", self.root / "proc")
        for volume in service.get("volumes") or []:
            target = self.root / volume["target"].lstrip("/")
            if volume["type"] == "volume":
                source = machine.volume(volume["source"], volume["target"])
                target.mkdir(exist_ok=True)
            else:
                source = pathlib.Path(volume["source"])
                target.touch()
            mount("--bind", source, target)
        self.env = dict(machine.image.env)
        for key, value in (service.get("environment") or {}).items():
            if value is None:
                self.env.pop(key, None)
            else:
                self.env[key] = literal(value)
        self.log = machine.scratch / f"{self.root.name}.log"
        self.process = None

    def _start(self, argv, **options):
        image = self.machine.image
        return dockerfile.start(
            self.root, argv, env=self.env, user=image.user, directory=image.directory, stdin=subprocess.DEVNULL, **options)

    def up(self, command=None):
        """Starts the container's program. A command replaces that of the service, as in `docker compose run`."""
        own, image = self.service, self.machine.image
        entrypoint = [literal(word) for word in own.get("entrypoint") or image.entrypoint]
        usual = [] if own.get("entrypoint") else image.command
        command = command or [literal(word) for word in own.get("command") or []] or usual
        with self.log.open("ab") as log:
            self.process = self._start([*entrypoint, *command], stdout=log, stderr=log)
        return self

    def run(self, command=None):
        """The exit status and the output of a program that ends by itself."""
        status = self.up(command).process.wait(120)
        return status, self.log.read_text()

    def exec(self, *argv):
        """The exit status and the output of a further program in the container."""
        ran = self._start(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        output, _ = ran.communicate(timeout=60)
        return ran.returncode, output

    def healthy(self):
        kind, *test = [literal(word) for word in self.service["healthcheck"]["test"]]
        assert kind == "CMD"
        return self.exec(*test)[0] == 0

    def wait_healthy(self, seconds=60):
        until(f"{self.name} is healthy", self.healthy, seconds, self)
        return self

    def down(self):
        """As `docker compose stop`: SIGTERM, and an end within the grace period."""
        self.process.terminate()
        status = self.process.wait(20)
        assert status == 0, f"{self.name} ended with {status}:\n{self.log.read_text()}"
        assert "panicked" not in self.log.read_text(), self.log.read_text()


def until(what, condition, seconds=60, container=None):
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        log = container.log.read_text() if container else ""
        if container and container.process.poll() is not None:
            raise AssertionError(f"{container.name} ended with {container.process.returncode}:\n{log}")
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{log}"
        time.sleep(0.1)
    return result


def project(root, directory):
    """A checkout with what Compose reads."""
    directory.mkdir()
    for file in ("docker-compose.yml", ".env", "Dockerfile"):
        shutil.copy(pathlib.Path(root, file), directory)
    return directory
