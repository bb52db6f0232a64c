"""Runs two Claude Code sessions with the installed hooks. In the first one a person
says a fact. In the second one a question about it is asked: the model's first
request must contain the fact, although no tool was called.

    claude_remembers.py CLAUDE GATEWAY SCRATCH

CLAUDE and GATEWAY are the programs, SCRATCH a directory for logs. HOME must point
to a directory that may be deleted. The environment says where the service is.
"""

import json
import os
import subprocess
import sys

import fake_messages_api

TIMEOUT_S = 120
FACT = "The staging database of the billing team listens on port 6543, behind the blue proxy."
QUESTION = "On which port does the staging database of the billing team listen?"
FIRST_ANSWER = "Understood: port 6543."


def story():
    """A model that calls no tool."""
    return
    yield


def session(claude, directory, prompt, log_path):
    """Runs one session and returns the bodies of its requests with tools."""
    with open(log_path, "w") as log:
        script = fake_messages_api.Script(story())
        script.farewell = FIRST_ANSWER
        api = fake_messages_api.serve(script, log)
        environment = {
            **os.environ,
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{api.server_port}",
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        environment.pop("CLAUDECODE", None)
        run = subprocess.run([claude, "-p", prompt], env=environment, cwd=directory, timeout=TIMEOUT_S, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        api.shutdown()
    assert run.returncode == 0, f"status {run.returncode}: {run.stdout[-1000:]} {run.stderr[-1000:]}"
    with open(log_path) as log:
        requests = [json.loads(line) for line in log]
    return [request["body"] for request in requests if request["path"].startswith("/v1/messages") and request["body"].get("tools")]


def main():
    claude, gateway, scratch = sys.argv[1:]
    directory = os.path.join(scratch, "remembered")
    os.makedirs(os.path.join(directory, ".git"), exist_ok=True)
    with open(os.path.join(directory, ".git", "config"), "w") as config:
        config.write('[remote "origin"]\n\turl = https://git.example/acme/billing.git\n')
    with open(os.path.join(directory, ".git", "HEAD"), "w") as head:
        head.write("ref: refs/heads/main\n")
    session(claude, directory, FACT, os.path.join(scratch, "remembers-1.log"))
    status = subprocess.run([gateway, "hook", "status"], cwd=directory, capture_output=True, text=True, check=True).stdout
    print(status)
    assert "git.example/acme/billing" in status, status
    assert "sent     2 messages" in status, "the prompt and the answer of the first session"
    requests = session(claude, directory, QUESTION, os.path.join(scratch, "remembers-2.log"))
    assert requests, "the second session asked the model nothing"
    first = json.dumps(requests[0], ensure_ascii=False)
    assert QUESTION in first
    assert "<remembered>" in first and FACT in first, "the first request lacks the fact"
    assert first.count("<remembered>") == 1 and first.count(FACT) == 1, "the fact is shown twice"
    print("the first request of the second session has the fact of the first one, without a tool call")


if __name__ == "__main__":
    main()
