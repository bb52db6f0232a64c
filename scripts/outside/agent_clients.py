"""One session of a real agent, offline: the client's own program against a model on
the loopback interface that gives one answer and calls no tool.

HOME must point to a directory that may be deleted, and hold the configuration of
`configure`. The environment says where the context service is.
"""

import json
import os
import subprocess
import threading

import fake_answers_api
import fake_messages_api

TIMEOUT_S = 120


def story():
    """A model that calls no tool."""
    return
    yield


class Claude:
    # How its requests name the day.
    day = "Today's date is %Y-%m-%d."

    def configure(self, home):
        pass

    def trust_hooks(self, program, home):
        pass

    def serve(self, answer, log):
        script = fake_messages_api.Script(story())
        script.farewell = answer
        return fake_messages_api.serve(script, log)

    def command(self, program, prompt, _port):
        return [program, "-p", prompt]

    def environment(self, port):
        return {
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
            # The fake APIs do not check keys.
            "ANTHROPIC_API_KEY": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def asks(self, path, body):
        """Whether the person's prompt is in the request. Titles and other side
        requests come without tools."""
        return path.startswith("/v1/messages") and bool(body.get("tools"))


class Codex:
    # Its program is static, so it keeps the machine's clock when tomorrow.c is preloaded.
    # The hooks that it runs do not.
    day = None

    def configure(self, home):
        # The address of the model is an argument, so that the file is always the same.
        write(
            os.path.join(home, ".codex", "config.toml"),
            '# mine\nmodel = "gpt-5.1-codex"\nmodel_provider = "scripted"\n\n[model_providers.scripted]\n'
            'name = "Scripted"\nbase_url = "http://127.0.0.1:9/v1"\nwire_api = "responses"\n',
        )

    def trust_hooks(self, program, home):
        """Does what Codex does when a person trusts the listed hooks."""
        server = subprocess.Popen([program, "app-server"], cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        # Its output ends when it is killed, and so does the wait for a reply.
        limit = threading.Timer(TIMEOUT_S, server.kill)
        limit.start()

        def call(method, params):
            server.stdin.write(json.dumps({"id": method, "method": method, "params": params}) + "\n")
            server.stdin.flush()
            for line in server.stdout:
                reply = json.loads(line)
                if reply.get("id") == method:
                    return reply["result"]
            raise AssertionError(f"no reply to {method} within {TIMEOUT_S} s, or the end of the program")

        try:
            call("initialize", {"clientInfo": {"name": "test", "version": "1"}})
            (listed,) = call("hooks/list", {"cwds": [home]})["data"]
            assert not listed["warnings"] and not listed["errors"], listed
            assert {hook["trustStatus"] for hook in listed["hooks"]} == {"untrusted"}, listed
            trusted = {hook["key"]: {"trusted_hash": hook["currentHash"]} for hook in listed["hooks"]}
            call("config/batchWrite", {"edits": [{"keyPath": "hooks.state", "value": trusted, "mergeStrategy": "upsert"}]})
            server.stdin.close()
            server.wait(TIMEOUT_S)
        finally:
            limit.cancel()
            server.kill()

    def serve(self, answer, log):
        return fake_answers_api.serve(answer, log)

    def command(self, program, prompt, port):
        address = f'model_providers.scripted.base_url="http://127.0.0.1:{port}/v1"'
        return [program, "exec", "--skip-git-repo-check", "-c", address, prompt]

    def environment(self, _port):
        return {}

    def asks(self, path, _body):
        return path.endswith("/responses")


class Gemini:
    day = "Today's date is %A, %B %-d, %Y"

    def trust_hooks(self, program, home):
        pass

    def configure(self, home):
        settings = {
            "general": {"enableAutoUpdate": False},
            "model": {"name": "gemini-2.5-flash"},
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
        }
        write(os.path.join(home, ".gemini", "settings.json"), json.dumps(settings, indent=4))

    def serve(self, answer, log):
        return fake_answers_api.serve(answer, log)

    def command(self, program, prompt, _port):
        # In other modes, the model of a run without a terminal is offered no tools of MCP servers.
        return [program, "--skip-trust", "--approval-mode", "yolo", "-p", prompt]

    def environment(self, port):
        return {"GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{port}", "GEMINI_API_KEY": "scripted", "LC_ALL": "C"}

    def asks(self, path, _body):
        return ":streamGenerateContent" in path


AGENTS = {"claude": Claude(), "codex": Codex(), "gemini": Gemini()}


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", newline="") as file:
        file.write(text)


def project(directory):
    """Makes a project with the identity git.example/acme/billing."""
    write(os.path.join(directory, ".git", "config"), '[remote "origin"]\n\turl = https://git.example/acme/billing.git\n')
    write(os.path.join(directory, ".git", "HEAD"), "ref: refs/heads/main\n")


def session(name, program, directory, prompt, answer, log_path, more):
    """Runs one session with `more` in its environment, and returns the bodies of the
    requests with the prompt."""
    agent = AGENTS[name]
    with open(log_path, "w") as log:
        api = agent.serve(answer, log)
        environment = {**os.environ, **agent.environment(api.server_port), **more}
        environment.pop("CLAUDECODE", None)
        command = agent.command(program, prompt, api.server_port)
        run = subprocess.run(command, env=environment, cwd=directory, timeout=TIMEOUT_S, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        api.shutdown()
    with open(log_path + ".output", "w") as output:
        output.write(run.stdout + run.stderr)
    assert run.returncode == 0, f"status {run.returncode}: {run.stdout[-1000:]} {run.stderr[-1000:]}"
    assert answer in run.stdout, f"no answer: {run.stdout[-1000:]} {run.stderr[-1000:]}"
    with open(log_path) as log:
        requests = [json.loads(line) for line in log]
    return [request["body"] for request in requests if agent.asks(request["path"], request["body"])]
