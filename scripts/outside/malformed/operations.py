"""A valid request of each tool of the default set and of most REST routes, which the mutations change."""

FILTERS = {
    "thread_id": "malformed",
    "source": "agent",
    "tags": ["a", "b"],
    "content_type": "text",
    "metadata": {"status": "active"},
    "metadata_filters": [
        {"key": "priority", "operator": "gte", "value": 3},
        {"key": "a.b", "operator": "in", "value": ["x", 1, True], "case_sensitive": True},
        {"key": "status", "operator": "exists"},
    ],
    "start_date": "2025-11-29",
    "end_date": "2035-11-29T10:00:00+02:00",
    "limit": 5,
    "offset": 0,
    "include_images": True,
    "explain_query": True,
}
ENTRY = {
    "thread_id": "malformed",
    "source": "agent",
    "text": "a text to be spoilt",
    "tags": ["a", "b"],
    "metadata": {"status": "active", "priority": 5, "deep": {"list": [1, 2.5, None, {"x": "y"}]}},
    "images": [{"data": "iVBORw0KGgo=", "mime_type": "image/png", "metadata": {"w": 1}}],
}
CHANGE = {"text": "another", "metadata_patch": {"status": None, "deep": {"list": []}}, "tags": [], "images": [], "expected_version": 1}

ARTIFACT = {"content": "# a text\n\nto be spoilt", "title": "a title", "metadata": {"deep": {"list": [1, 2.5, None]}}}
EDITS = {"edits": [{"old_str": "a", "new_str": "b"}, {"insert_line": 0, "new_str": "c"}], "metadata": {}, "expected_version": 1}
NOWHERE = "123e4567-e89b-12d3-a456-426614174000"

FEED = {
    "cursor": "now",
    "thread_id": "malformed",
    "source": "agent",
    "entity": "context",
    "preview_chars": 10,
}
FEED_FILTERS = {name: FILTERS[name] for name in ("content_type", "metadata", "metadata_filters", "start_date", "end_date")}

# Tool name to arguments. The REST bodies have the same shape.
TOOLS = {
    "store_context": ENTRY,
    "store_context_batch": {"entries": [ENTRY, {"thread_id": "malformed", "source": "user", "text": "two"}], "atomic": True},
    "get_context_by_ids": {"context_ids": [1, 2, "3"], "include_images": True},
    "update_context": {"context_id": 1, **CHANGE},
    "update_context_batch": {"updates": [{"context_id": 1, **CHANGE}, {"context_id": 2, "metadata": {}}], "atomic": False},
    "delete_context": {"context_ids": [1_000_000, 2_000_000]},
    "delete_context_batch": {"context_ids": [1_000_000], "thread_ids": ["nowhere"], "source": "user", "older_than_days": 36_500},
    "search_context": FILTERS,
    "fts_search_context": {"query": '(text OR "to be") AND NOT spoil*', "mode": "boolean", "highlight": True, **FILTERS},
    "semantic_search_context": {"query": "text", **FILTERS},
    "hybrid_search_context": {"query": "text", "search_modes": ["fts"], "fusion_method": "rrf", "rrf_k": 60, **FILTERS},
    "list_threads": {"limit": 10, "offset": 0},
    "get_statistics": {},
    "changes_since": {**FEED, "tags": ["a", "b"], "limit": 5, "wait_ms": 1},
    "create_artifact": ARTIFACT,
    "list_artifacts": {"limit": 10, "offset": 0},
    "search_artifacts": {"query": "100% _a", "limit": 5},
    "get_artifact": {"artifact_id": NOWHERE},
    "update_artifact": {"artifact_id": NOWHERE, **EDITS},
    "delete_artifact": {"artifact_id": NOWHERE},
    "list_artifact_versions": {"artifact_id": NOWHERE},
    "get_artifact_version": {"artifact_id": NOWHERE, "version_number": 1},
    "restore_artifact_version": {"artifact_id": NOWHERE, "version_number": 1},
}

# Method, path, body.
ROUTES = [
    ("POST", "/v1/contexts", TOOLS["store_context"]),
    ("POST", "/v1/contexts/batch", TOOLS["store_context_batch"]),
    ("PATCH", "/v1/contexts/1", CHANGE),
    ("PATCH", "/v1/contexts/batch", TOOLS["update_context_batch"]),
    ("POST", "/v1/contexts/delete", TOOLS["delete_context"]),
    ("POST", "/v1/contexts/batch-delete", TOOLS["delete_context_batch"]),
    ("POST", "/v1/contexts/search", TOOLS["search_context"]),
    ("POST", "/v1/contexts/search/fts", TOOLS["fts_search_context"]),
    ("POST", "/v1/contexts/search/semantic", TOOLS["semantic_search_context"]),
    ("POST", "/v1/contexts/search/hybrid", TOOLS["hybrid_search_context"]),
    ("POST", "/v1/artifacts", ARTIFACT),
    ("POST", "/v1/artifacts/move", {"path": "/malformed", "to": "/malformed, moved"}),
    ("POST", "/v1/artifacts/delete", {"path": "/malformed, moved"}),
    ("PATCH", f"/v1/artifacts/{NOWHERE}", EDITS),
    ("POST", f"/v1/artifacts/{NOWHERE}/versions/1/restore", {}),
]
# Routes whose parameters are in the query string: path to parameters.
QUERY_ROUTES = {
    "/v1/metadata/keys": {"thread_id": "malformed", "prefix": "a", "limit": 5},
    "/v1/metadata/values": {"key": "status", "thread_id": "malformed", "prefix": "a", "limit": 5},
    "/v1/days": {"thread_id": "malformed", "start_date": "2026-01-01", "end_date": "2026-12-31", "limit": 5},
    "/v1/tags": {"thread_id": "malformed", "prefix": "a", "limit": 5, "offset": 0},
    "/v1/artifacts": {"path_prefix": "/", "limit": 5, "offset": 0, "metadata_filters": FILTERS["metadata_filters"]},
    "/v1/artifacts/by-path": {"path": "/malformed"},
    f"/v1/artifacts/{NOWHERE}/diff": {"from_version": 1, "to_version": 2},
    "/v1/changes": {**FEED, **FEED_FILTERS, "tag": ["a", "b"], "limit": 5, "wait_ms": 1, "include_body": True},
    "/v1/watch": {**FEED, **FEED_FILTERS, "tag": ["a", "b"], "include_body": True},
}
PLAIN_ROUTES = [
    "/v1/contexts/1",
    "/v1/contexts?ids=1,2",
    "/v1/threads?limit=5&offset=0",
    "/v1/threads/malformed",
    "/v1/statistics",
    "/v1/artifacts?limit=5",
    "/v1/artifacts/search?query=a",
    "/openapi.json",
    "/healthz",
]
