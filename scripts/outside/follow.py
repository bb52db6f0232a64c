"""Checks that a follower keeps its copy equal to the service while both are killed,
stopped and started again, and the database is put back to an older copy.

    python3 follow.py SERVICE DIRECTORY COPY COMMAND...

COPY is what the follower writes: a SQLite file (.db), a JSON file (.json), or a
directory of JSON files. In COMMAND, {copy}, {url} and {address} are replaced. The
service's database and log are in DIRECTORY.
"""

import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time

TIMEOUT_S = 180
LOST = (OSError, http.client.HTTPException)


class Service:
    """The service with a database of its own, always on the same port."""

    def __init__(self, binary, directory):
        self.binary, self.directory = binary, directory
        self.log = open(directory / "follow-service.log", "ab")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % free.getsockname()[1]
        self.database = directory / "follow.db"

    def start(self):
        environment = {**os.environ, "DB_PATH": str(self.database), "CONTEXT_SOCKET": str(self.directory / "follow.sock")}
        self.process = subprocess.Popen([self.binary, "--listen", self.address], stdout=self.log, stderr=self.log, env=environment)

        def ready():
            assert self.process.poll() is None, f"the service ended with {self.process.returncode}"
            return self.call("GET", "/readyz") is not None

        wait_until("the service is ready", ready)

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(TIMEOUT_S)

    def restart(self, how):
        self.end(how)
        self.start()

    def back_up(self):
        """Copies the database of the service, which must not run. Returns the function that puts the copy back."""
        backup = self.directory / "backup"
        shutil.rmtree(backup, ignore_errors=True)
        backup.mkdir()
        for file in self._files():
            shutil.copy(file, backup)

        def put_back():
            for file in self._files():
                file.unlink()
            for file in backup.iterdir():
                shutil.copy(file, self.directory)

        return put_back

    def _files(self):
        return list(self.directory.glob(self.database.name + "*"))

    def call(self, method, path, body=None):
        """The reply in JSON; None for an error or when the service does not reply."""
        try:
            connection = http.client.HTTPConnection(self.address, timeout=30)
            with contextlib.closing(connection):
                headers = {"Content-Type": "application/json"} if body is not None else {}
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                reply = connection.getresponse()
                data = reply.read()
            return json.loads(data) if reply.status < 300 and data.startswith(b"{") else None
        except LOST:
            return None

    def entries(self):
        """What the lists of the API return: id to (version, text, tags, metadata). None if the service is down."""
        ids, offset, more = [], 0, True
        while more:
            page = self.call("POST", "/v1/contexts/search", {"limit": 100, "offset": offset})
            if page is None:
                return None
            ids += [hit["id"] for hit in page["results"]]
            offset, more = offset + 100, page["has_more"]
        found = {}
        for start in range(0, len(ids), 100):
            some = ",".join(map(str, ids[start : start + 100]))
            page = self.call("GET", f"/v1/contexts?ids={some}&include_images=false")
            if page is None:
                return None
            found |= {entry["id"]: content(entry) for entry in page["result"]}
        return found


class Writer(threading.Thread):
    """Stores, updates and deletes entries until it is stopped."""

    def __init__(self, service, rng):
        super().__init__(daemon=True)
        self.service, self.rng = service, rng
        self.ids, self.writes, self.stopped = [], 0, threading.Event()

    def run(self):
        while not self.stopped.is_set():
            if self.write() is None:
                self.stopped.wait(0.05)
            else:
                self.writes += 1

    def write(self):
        rng, number = self.rng, self.writes
        kind = rng.random()
        text = f"text {number} 🙂 " + "x" * rng.choice([0, 10, 5000, 70_000])
        if kind < 0.5 or len(self.ids) < 10:
            entry = {"thread_id": f"t{rng.randrange(5)}", "source": "user", "text": text, "tags": ["b", "a"], "metadata": {"n": number, "list": [1, None, {"id": "7"}]}}
            reply = self.service.call("POST", "/v1/contexts", entry)
            if reply is not None:
                self.ids.append(reply["context_id"])
        elif kind < 0.6:
            reply = self.service.call("POST", "/v1/artifacts", {"content": text})
        elif kind < 0.8:
            change = rng.choice([{"text": text}, {"tags": []}, {"metadata_patch": {"n": None, "m": 2**53}}])
            reply = self.service.call("PATCH", f"/v1/contexts/{rng.choice(self.ids)}", change)
        else:
            some = {rng.choice(self.ids) for _ in range(rng.choice([1, 1, 5]))}
            reply = self.service.call("POST", "/v1/contexts/delete", {"context_ids": sorted(some)})
            if reply is not None:
                self.ids = [one for one in self.ids if one not in some]
        return reply

    def write_now(self, count):
        """Tries so many writes. Some may fail, because their entry is no longer there, but not all."""
        succeeded = sum(self.write() is not None for _ in range(count))
        assert succeeded > 0, f"none of {count} writes succeeded"
        self.writes += succeeded
        return succeeded

    def wait_for_writes(self, count):
        """Waits until so many more writes have succeeded."""
        wanted = self.writes + count
        wait_until(f"{count} writes", lambda: self.writes >= wanted)


def content(entry):
    return entry["version"], entry["text_content"], entry["tags"], entry["metadata"]


class Follower:
    """The follower under test."""

    def __init__(self, command, copy, service, directory):
        given = {"copy": str(copy), "url": f"http://{service.address}", "address": service.address}
        self.command = [argument.format(**given) for argument in command]
        self.copy, self.directory = copy, directory

    def start(self):
        with open(self.directory / "follower.log", "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, start_new_session=True)

    def kill(self):
        # The group, because a follower in a shell or a package runner has children, which may outlive it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(TIMEOUT_S)

    def delete_copy(self):
        for file in self.copy.parent.glob(self.copy.name + "*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()

    def entries(self):
        """The copy, in the form of Service.entries. None while it cannot be read."""
        try:
            if self.copy.suffix == ".db":
                # Without creating it: the follower does that.
                address = self.copy.absolute().as_uri() + "?mode=rw"
                with contextlib.closing(sqlite3.connect(address, uri=True)) as database:
                    rows = database.execute("SELECT id, version, text, tags, metadata FROM entries")
                    return {row[0]: (row[1], row[2], json.loads(row[3]), json.loads(row[4])) for row in rows}
            if self.copy.suffix == ".json":
                return {int(number): content(entry) for number, entry in json.loads(self.copy.read_text())["entries"].items()}
            entries = {}
            for file in self.copy.glob("*.json"):
                entries[int(file.stem)] = content(json.loads(file.read_text())["context"])
            return entries
        except (OSError, ValueError, sqlite3.OperationalError):
            return None

    def wait_until_equal(self, service, after):
        """Waits until the copy equals what the service has."""
        started = time.monotonic()

        def in_step():
            assert self.process.poll() is None, f"the follower ended with {self.process.returncode}, after {after}"
            self.last = self.entries(), service.entries()
            return self.last[0] is not None and self.last[0] == self.last[1]

        try:
            wait_until(f"in step after {after}", in_step)
        except TimeoutError:
            copy, stored = ({} if one is None else one for one in self.last)
            wrong = [number for number in stored if copy.get(number) != stored[number]]
            print(f"missing or old: {sorted(wrong)[:20]}, too many: {sorted(copy.keys() - stored.keys())[:20]}", file=sys.stderr)
            raise
        print(f"  after {after}: {len(self.last[1])} entries, in step after {time.monotonic() - started:.1f} s")


def wait_until(what, holds):
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {TIMEOUT_S} s: {what}")
        time.sleep(0.05)


def walk(service, follower, rng):
    service.start()
    for batch in range(3):
        entries = [{"thread_id": "t", "source": "agent", "text": f"{batch} {n}"} for n in range(90)]
        assert service.call("POST", "/v1/contexts/batch", {"entries": entries})["succeeded"] == 90
    follower.start()
    follower.wait_until_equal(service, "the snapshot")

    writer = Writer(service, rng)
    writer.start()
    writer.wait_for_writes(40)
    service.restart(signal.SIGKILL)
    writer.wait_for_writes(40)
    follower.kill()
    writer.wait_for_writes(40)
    follower.start()
    writer.wait_for_writes(40)
    service.restart(signal.SIGTERM)
    writer.wait_for_writes(40)
    # A new copy. During its snapshot entries are written, and the service is killed.
    follower.kill()
    follower.delete_copy()
    follower.start()
    writer.wait_for_writes(5)
    service.restart(signal.SIGKILL)
    writer.wait_for_writes(40)
    writer.stopped.set()
    writer.join(TIMEOUT_S)
    assert not writer.is_alive(), "the writer did not stop"
    follower.wait_until_equal(service, f"{writer.writes} writes, with both killed and started again")

    # The database is put back: the cursor is ahead of it.
    service.end(signal.SIGTERM)
    put_back = service.back_up()
    service.start()
    succeeded = writer.write_now(30)
    follower.wait_until_equal(service, f"{succeeded} more writes")
    service.end(signal.SIGTERM)
    put_back()
    service.start()
    follower.wait_until_equal(service, "the database was put back")

    # The database is put back, and other changes get the revisions of those that are lost.
    succeeded = writer.write_now(10)
    follower.wait_until_equal(service, f"{succeeded} more writes")
    follower.kill()
    service.end(signal.SIGTERM)
    put_back()
    service.start()
    writer.write_now(60)
    follower.start()
    follower.wait_until_equal(service, "the database was put back and written to")


def main():
    binary, directory, copy, *command = sys.argv[1:]
    # So that a run that is stopped leaves no process behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True)
    seed = int(os.environ.get("FOLLOW_SEED", random.randrange(2**16)))
    print(f"follow: {command[0]} ... into {copy}, FOLLOW_SEED={seed}")
    service = Service(binary, directory)
    follower = Follower(command, directory / copy, service, directory)
    try:
        walk(service, follower, random.Random(seed))
    except BaseException:
        for log in directory.glob("follow*.log"):
            print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-30:], sep="\n", file=sys.stderr)
        raise
    finally:
        if hasattr(follower, "process"):
            follower.kill()
        if hasattr(service, "process") and service.process.poll() is None:
            service.process.kill()
    log = (directory / "follow-service.log").read_text(errors="replace")
    assert "panicked at" not in log, "a panic in the service's log"


if __name__ == "__main__":
    main()
