r"""Stores, finds, changes and deletes an entry over REST through the client that
openapi-python-client generates, and reads the errors of invalid calls.

    openapi-python-client generate --path openapi/openapi.json --config clients/python/openapi-python-client.yaml \
        --meta none --output-path generated/context_service_client --fail-on-warning
    PYTHONPATH=generated python3 clients/python/rest.py [http://127.0.0.1:7420]
"""

import os
import sys
from http import HTTPStatus
from typing import TypeVar

from context_service_client import AuthenticatedClient
from context_service_client.api.contexts import delete_context_by_id, get_context, store_context, update_context
from context_service_client.api.search import fts_search_context, search_context
from context_service_client.models.fts_search_context_request import FtsSearchContextRequest
from context_service_client.models.problem import Problem
from context_service_client.models.reason import Reason
from context_service_client.models.search_context_request import SearchContextRequest
from context_service_client.models.store_context_request import StoreContextRequest
from context_service_client.models.update_context_body import UpdateContextBody
from context_service_client.types import Response

Reply = TypeVar("Reply")


def done(reply: Problem | Reply | None) -> Reply:
    """The reply of a call that must succeed."""
    assert reply is not None and not isinstance(reply, Problem), reply
    return reply


def refused(response: Response[Problem | Reply], status: HTTPStatus, reason: str) -> Problem:
    """The error of a call that must fail with this status and reason."""
    problem = response.parsed
    assert isinstance(problem, Problem), problem
    assert (response.status_code, problem.reason) == (status, reason), problem
    return problem


def walk(client: AuthenticatedClient) -> None:
    thread = f"python-rest-{os.getpid()}"

    # A retry with the same idempotency key returns the first reply.
    text = "Retries use full jitter since the March outage."
    entry = StoreContextRequest.from_dict(
        {"thread_id": thread, "source": "agent", "text": text, "tags": ["Retries"], "metadata": {"attempts": 2**62}}
    )
    stored = done(store_context.sync(client=client, body=entry, idempotency_key=thread))
    again = done(store_context.sync(client=client, body=entry, idempotency_key=thread))
    assert stored.context_id == again.context_id, (stored, again)

    # Get.
    read = done(get_context.sync(stored.context_id, client=client))
    assert (read.text_content, read.tags, read.version) == (text, ["retries"], 1), read
    assert read.metadata.to_dict() == {"attempts": 2**62}, read

    # Search by metadata and full text.
    condition = {"key": "attempts", "operator": "eq", "value": 2**62}
    narrowed = SearchContextRequest.from_dict({"thread_id": thread, "metadata_filters": [condition]})
    found = done(search_context.sync(client=client, body=narrowed))
    assert [hit.id for hit in found.results] == [stored.context_id], found
    query = FtsSearchContextRequest.from_dict({"query": "retry outages", "thread_id": thread, "mode": "match"})
    words = done(fts_search_context.sync(client=client, body=query))
    assert [hit.id for hit in words.results] == [stored.context_id], words

    # An update with the version that was read succeeds once.
    body = UpdateContextBody.from_dict({"text": "Retries use full jitter and a budget."})
    changed = done(update_context.sync(stored.context_id, client=client, body=body, if_match='"1"'))
    assert changed.version == 2, changed
    late = update_context.sync_detailed(stored.context_id, client=client, body=body, if_match='"1"')
    refused(late, HTTPStatus.PRECONDITION_FAILED, "VERSION_MISMATCH")

    # The error names every invalid field.
    unlimited = search_context.sync_detailed(client=client, body=SearchContextRequest(limit=500))
    problem = refused(unlimited, HTTPStatus.BAD_REQUEST, "INVALID_ARGUMENT")
    assert [violation.field for violation in problem.violations] == ["limit"], problem

    # A reason that only a later version of the service has is read as a string.
    later = Problem.from_dict(problem.to_dict() | {"reason": "REASON_OF_A_LATER_VERSION"})
    assert (later.reason, isinstance(later.reason, Reason)) == ("REASON_OF_A_LATER_VERSION", False), later
    assert problem.reason is Reason.INVALID_ARGUMENT, problem

    # Delete it.
    assert done(delete_context_by_id.sync(stored.context_id, client=client)).deleted_count == 1
    refused(get_context.sync_detailed(stored.context_id, client=client), HTTPStatus.NOT_FOUND, "CONTEXT_NOT_FOUND")


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7420"
    # A service with AUTH=off ignores the token.
    with AuthenticatedClient(base_url=url, token=os.environ.get("CONTEXT_API_KEY", "none")) as client:
        walk(client)
    print("python: stored, found, changed and deleted through the client generated from OpenAPI")


if __name__ == "__main__":
    main()
