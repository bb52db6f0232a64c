"""Rules that the OpenAPI document cannot express for schemathesis."""

import json
import re

import schemathesis

INT64_MAX = 2**63 - 1
# How long a list may wait for a change, and how long it waits here.
MAX_WAIT_MS = 25_000
WAIT_MS = 5


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Replaces a valid `min_revision` by one that is already reached, and a valid
    `wait_ms` by a short one. Invalid ones stay.

    The service refuses a revision that no reply has returned. That is correct, but
    here it would count as a fault."""
    # A number in a query may be a text. In a body a text is invalid, so it stays.
    for values, types in ((case.query, (int, str)), (case.body, int)):
        if isinstance(values, dict) and _between(1, values.get("min_revision"), INT64_MAX, types):
            values["min_revision"] = 0
        if isinstance(values, dict) and _between(WAIT_MS, values.get("wait_ms"), MAX_WAIT_MS, types):
            values["wait_ms"] = WAIT_MS


@schemathesis.hook
def filter_query(_context, query):
    """Drops queries that are generated as invalid but are valid when they are sent.

    In a query string 4 and [4] are the same, and {} and [] are absent."""
    if not isinstance(query, dict):
        return True
    return not any(value == {} or value == [] for value in query.values()) and not isinstance(query.get("ids"), int)


@schemathesis.check
def stream_begins_with_opened(_context, response, case):
    """The first event of a stream says where it starts, and has a cursor unless a snapshot follows."""
    if case.path == "/v1/watch" and response.status_code == 200:
        pause, opened = (dict(line.split(": ", 1) for line in block.splitlines()) for block in response.text.strip().split("\n\n"))
        assert pause == {"retry": "1000"}, pause
        assert opened["event"] == "opened" and json.loads(opened["data"])["revision"] >= 0, opened
        # An empty id means none.
        resumes = bool((case.headers or {}).get("Last-Event-ID"))
        wants_snapshot = str((case.query or {}).get("snapshot")).lower() == "true"
        assert ("id" in opened) != (wants_snapshot and not resumes), opened


def _between(least, value, most, types):
    """Whether the value is of one of the types and denotes an integer from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, types):
        return False
    # int() also reads texts that the service refuses, such as "1_0" and " 10".
    if isinstance(value, str) and not re.fullmatch(r"\+?[0-9]{1,30}", value):
        return False
    return least <= int(value) <= most
