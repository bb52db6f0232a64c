"""Runs two sessions of an agent with the installed hooks. In the first one a person
says a fact. Then the service ends, as it would overnight. In the second session, for
which it is the next day, a question about the fact is asked: the model's first request
must contain the fact with its date, although no tool was called.

    remembers.py AGENT PROGRAM GATEWAY SCRATCH

AGENT is claude, codex or gemini, PROGRAM its program, GATEWAY the gateway, SCRATCH a
directory for logs. See agent_clients.py for what else the sessions need.
"""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta

import agent_clients

FACT = "The staging database of the billing team listens on port 6543, behind the blue proxy."
QUESTION = "On which port does the staging database of the billing team listen?"
FIRST_ANSWER = "Understood: port 6543."
SECOND_ANSWER = "It listens on port 6543."


def tomorrow(scratch):
    """The environment of programs for which it is the next day."""
    library = os.path.join(scratch, "tomorrow.so")
    source = os.path.join(os.path.dirname(__file__), "tomorrow.c")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", library, source], check=True, timeout=agent_clients.TIMEOUT_S)
    return {"LD_PRELOAD": library}


def sessions(name, program, scratch, log, between=lambda: None):
    """Runs the sessions in a project, the second one on the next day. Returns the second
    one's requests that hold the prompt. The log files begin with `log`."""
    directory = os.path.join(scratch, "remembered")
    agent_clients.project(directory)
    os.chdir(directory)
    agent_clients.session(name, program, directory, FACT, FIRST_ANSWER, os.path.join(scratch, f"{log}-1.log"), {})
    between()
    return agent_clients.session(name, program, directory, QUESTION, SECOND_ANSWER, os.path.join(scratch, f"{log}-2.log"), tomorrow(scratch))


def check(name, program, gateway, scratch):
    """Runs the sessions and checks them. Returns the first request of the second one."""

    def overnight():
        status = status_of(gateway)
        print(status)
        assert "git.example/acme/billing" in status, status
        assert "sent     2 messages" in status, "the prompt and the answer of the first session"
        end_service(gateway)

    days = [time.localtime(time.time() + 24 * 60 * 60)]
    requests = sessions(name, program, scratch, name, overnight)
    days.append(time.localtime(time.time() + 24 * 60 * 60))
    assert requests, "the second session asked the model nothing"
    # Gemini CLI replaces the angle brackets of what a hook adds.
    first = json.dumps(requests[0], ensure_ascii=False).replace("&lt;", "<").replace("&gt;", ">")
    assert QUESTION in first
    assert "<remembered>" in first and FACT in first, "the first request lacks the fact"
    assert first.count("<remembered>") == 1 and first.count(FACT) == 1, "the fact is shown twice"
    status = status_of(gateway)
    assert "sent     4 messages" in status, f"the prompt and the answer of the second session: {status}"
    listed = subprocess.run([gateway, "list", "--json"], capture_output=True, text=True, check=True, timeout=agent_clients.TIMEOUT_S).stdout
    results = json.loads(listed)["results"]
    said = sorted(entry["text_content"] for entry in results)
    assert said == sorted([FACT, FIRST_ANSWER, QUESTION, SECOND_ANSWER]), said
    entries = {entry["text_content"]: entry for entry in results}
    # The clock of the service, and that of the hooks.
    for clock in (lambda entry: entry["created_at"], lambda entry: entry["metadata"]["said_at"]):
        times = [datetime.fromisoformat(clock(entries[text]).replace("Z", "+00:00")) for text in (FACT, FIRST_ANSWER, QUESTION, SECOND_ANSWER)]
        assert times[2] - times[1] >= timedelta(days=1) and times == sorted(times), f"the sessions are not on two days: {times}"
    fact = entries[FACT]
    assert f"[id {fact['id']}, {fact['created_at'][:10]}, user]" in first, f"the fact is not dated {fact['created_at']}: {first}"
    day = agent_clients.AGENTS[name].day
    assert day is None or any(time.strftime(day, at) in first for at in days), f"the client lives on another day: {first}"
    print(
        f"{name}: the first request of the second session, on the next day ({entries[QUESTION]['created_at']}), "
        f"has the fact of the first one ({fact['created_at']}), without a tool call"
    )
    return first


def status_of(gateway):
    return subprocess.run([gateway, "hook", "status"], capture_output=True, text=True, check=True, timeout=agent_clients.TIMEOUT_S).stdout


def end_service(gateway):
    """Ends the service that the hooks started for this database, and waits for it."""
    service = os.path.join(os.path.dirname(os.path.realpath(gateway)), "context-service")
    database = f"DB_PATH={os.environ['DB_PATH']}".encode()
    ended = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_it = os.readlink(f"/proc/{pid}/exe") == service and database in open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
        except OSError:
            continue
        if is_it:
            os.kill(int(pid), signal.SIGTERM)
            ended.append(pid)
    assert len(ended) == 1, f"the services of {database}: {ended}"
    deadline = time.monotonic() + 30
    while is_running(ended[0]):
        assert time.monotonic() < deadline, f"the service {ended[0]} did not end within 30 s"
        time.sleep(0.05)


def is_running(pid):
    """Whether the process runs. A process that has ended stays in /proc until its parent reads its status, and in a
    container the parent may never do so."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


if __name__ == "__main__":
    check(*sys.argv[1:])
