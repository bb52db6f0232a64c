#!/usr/bin/env bash
# Calls most REST operations of a running context service with curl and checks the
# statuses, headers and important parts of the bodies.
#
#   clients/curl/walk.sh [http://127.0.0.1:7420]
#
# Needs curl and python3 (to read JSON). Deletes its entries and its artifact at the
# end. The list of changes still names them.

set -uo pipefail

BASE=${1:-http://127.0.0.1:7420}
THREAD=curl-walk-$$
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
failures=0
checks=0

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*" >&2
    echo "  status $status, body: $(head -c 400 "$WORK/body")" >&2
}

# call METHOD PATH [curl argument...] : sets $status, writes body and headers to files.
call() {
    local method=$1 path=$2
    shift 2
    status=$(curl --silent --show-error --max-time 30 --request "$method" "$BASE$path" \
        --output "$WORK/body" --dump-header "$WORK/headers" --write-out '%{http_code}' "$@")
}

# send METHOD PATH JSON [curl argument...] : the same with a JSON body.
send() {
    local method=$1 path=$2 body=$3
    shift 3
    call "$method" "$path" --header 'Content-Type: application/json' --data-binary "$body" "$@"
}

header() {
    tr -d '\r' <"$WORK/headers" | awk -v name="$1:" 'tolower($1) == tolower(name) { $1 = ""; sub(/^ /, ""); print; exit }'
}

# json EXPRESSION : prints a Python expression over the body, called `body`. Where it fails it prints
# the expression, so that two failures are not the same.
json() {
    python3 -c '
import json, sys
body = json.load(open(sys.argv[1], encoding="utf-8"))
value = eval(sys.argv[2])
print(value if isinstance(value, str) else json.dumps(value))' "$WORK/body" "$1" 2>/dev/null || echo "not there: $1"
}

# expect WHAT STATUS : checks the status of the last call.
expect() {
    checks=$((checks + 1))
    [[ $status == "$2" ]] || fail "$1: expected status $2"
}

# same WHAT WANTED GOT
same() {
    checks=$((checks + 1))
    [[ $2 == "$3" ]] || fail "$1: expected '$2', got '$3'"
}

# problem WHAT STATUS REASON : checks that the last call failed as RFC 9457 describes.
problem() {
    expect "$1" "$2"
    same "$1: content type" application/problem+json "$(header content-type | cut -d';' -f1)"
    same "$1: status and reason in the body" "[$2, \"$3\"]" "$(json '[body["status"], body["reason"]]')"
}

# --- store: 201, Location, ETag ------------------------------------------------
send POST /v1/contexts '{"thread_id": "'"$THREAD"'", "source": "user", "text": "We chose PostgreSQL for billing.",
    "tags": ["Decision", "billing"], "metadata": {"status": "active", "priority": 9007199254740993}}'
expect "store" 201
id=$(json 'body["context_id"]')
same "store: Location" "/v1/contexts/$id" "$(header location)"
same "store: ETag" '"1"' "$(header etag)"
same "store: success" true "$(json 'body["success"]')"

# --- a repeated request stores no second entry ---------------------------------------
send POST /v1/contexts '{"thread_id": "'"$THREAD"'", "source": "user", "text": "We chose PostgreSQL for billing."}'
expect "a retransmit stores nothing new" 200
same "a retransmit gives the same id" "$id" "$(json 'body["context_id"]')"

# --- the error of invalid input names the field -------------------------------------
send POST /v1/contexts '{"thread_id": " ", "source": "robot", "text": "x"}'
problem "store with two bad fields" 400 INVALID_ARGUMENT
same "every bad field is named" '["source", "thread_id"]' "$(json 'sorted(v["field"] for v in body["violations"])')"
send POST /v1/contexts '{"thread_id": "t", "source": "user", "text": "x", "txet": 1}'
problem "an unknown field" 400 INVALID_ARGUMENT
send POST /v1/contexts '{"thread_id": "t", '
problem "a body that is not JSON" 400 INVALID_ARGUMENT
call POST /v1/contexts --header 'Content-Type: text/plain' --data-binary 'x'
problem "a body of another type" 415 UNSUPPORTED_MEDIA_TYPE

# --- Idempotency-Key --------------------------------------------------------------
body='{"thread_id": "'"$THREAD"'", "source": "agent", "text": "Stored once."}'
send POST /v1/contexts "$body" --header "Idempotency-Key: $THREAD"
expect "store with an idempotency key" 201
once=$(json 'body["context_id"]')
send POST /v1/contexts '{"thread_id": "'"$THREAD"'", "source": "user", "text": "Something else came between."}'
expect "store something else" 201
send POST /v1/contexts "$body" --header "Idempotency-Key: $THREAD"
expect "the same key and body again" 201
same "the replay gives the first id" "$once" "$(json 'body["context_id"]')"
send POST /v1/contexts "${body/once/twice}" --header "Idempotency-Key: $THREAD"
problem "the same key with another body" 422 IDEMPOTENCY_KEY_REUSED

# --- get: one, a list, an unknown id -------------------------------------------------
call GET "/v1/contexts/$id"
expect "get" 200
same "get: ETag" '"1"' "$(header etag)"
same "get: text" "We chose PostgreSQL for billing." "$(json 'body["text_content"]')"
same "get: tags" '["billing", "decision"]' "$(json 'body["tags"]')"
same "get: a large integer survives" 9007199254740993 "$(json 'body["metadata"]["priority"]')"
call GET "/v1/contexts?ids=$id,$once,1999999999"
expect "get of several" 200
same "get of several: unknown ids are skipped" 2 "$(json 'len(body["result"])')"
call GET /v1/contexts/1999999999
problem "get of an unknown entry" 404 CONTEXT_NOT_FOUND
call GET /v1/contexts/zero
problem "get of something that is no id" 400 INVALID_ARGUMENT
call GET "/v1/contexts/$id" --header 'If-None-Match: "1"'
expect "get of what the caller has already" 304

# --- update: If-Match -------------------------------------------------------------
send PATCH "/v1/contexts/$id" '{"metadata_patch": {"status": "done", "priority": null}}' --header 'If-Match: "1"'
expect "update" 200
same "update: ETag" '"2"' "$(header etag)"
same "update: fields" '["metadata"]' "$(json 'body["updated_fields"]')"
send PATCH "/v1/contexts/$id" '{"text": "too late"}' --header 'If-Match: "1"'
problem "update of a version that is gone" 412 VERSION_MISMATCH
send PATCH "/v1/contexts/$id" '{}'
problem "update of nothing" 400 INVALID_ARGUMENT
send PATCH /v1/contexts/1999999999 '{"text": "x"}'
problem "update of an unknown entry" 404 CONTEXT_NOT_FOUND
call GET "/v1/contexts/$id"
same "update: the patch is there" '{"status": "done"}' "$(json 'body["metadata"]')"

# --- batches -------------------------------------------------------------------------
send POST /v1/contexts/batch '{"entries": [{"thread_id": "'"$THREAD"'", "source": "agent", "text": "first of two"},
    {"thread_id": "'"$THREAD"'", "source": "agent", "text": "second of two", "images": [{"data": "iVBORw0KGgo="}]}]}'
expect "store a batch" 200
same "batch: all of it" 2 "$(json 'body["succeeded"]')"
first=$(json 'body["results"][0]["context_id"]')
second=$(json 'body["results"][1]["context_id"]')
send POST /v1/contexts/batch '{"entries": [{"thread_id": "'"$THREAD"'", "source": "agent", "text": "good"},
    {"thread_id": "'"$THREAD"'", "source": "nobody", "text": "bad"}]}'
problem "an atomic batch with a bad item" 400 INVALID_ARGUMENT
send PATCH /v1/contexts/batch '{"atomic": false, "updates": [{"context_id": '"$first"', "tags": ["batch"]}, {"context_id": 1999999999, "text": "x"}]}'
expect "update a batch, each for itself" 200
same "update batch: one of two" '[1, 1, false]' "$(json '[body["succeeded"], body["failed"], body["success"]]')"
call GET "/v1/contexts/$second"
same "an image makes it multimodal" multimodal "$(json 'body["content_type"]')"
same "the image comes back" iVBORw0KGgo= "$(json 'body["images"][0]["data"]')"

# --- search ---------------------------------------------------------------------------
send POST /v1/contexts/search '{"thread_id": "'"$THREAD"'", "metadata_filters": [{"key": "status", "operator": "eq", "value": "DONE"}]}'
expect "search" 200
same "search: by metadata" "[$id]" "$(json '[hit["id"] for hit in body["results"]]')"
send POST /v1/contexts/search '{"limit": 101}'
problem "search with a limit out of range" 400 INVALID_ARGUMENT
send POST /v1/contexts/search/fts '{"query": "chosen postgresql", "mode": "prefix", "thread_id": "'"$THREAD"'"}'
expect "full text" 200
send POST /v1/contexts/search/fts '{"query": "billing", "highlight": true, "thread_id": "'"$THREAD"'"}'
same "full text: the hit" "[$id]" "$(json '[hit["id"] for hit in body["results"]]')"
same "full text: highlighted" true "$(json '"<mark>billing</mark>" in body["results"][0]["highlighted"]')"
send POST /v1/contexts/search/fts '{"query": "AND )", "mode": "boolean"}'
problem "a boolean query that does not parse" 400 INVALID_ARGUMENT
send POST /v1/contexts/search/hybrid '{"query": "billing", "thread_id": "'"$THREAD"'"}'
expect "hybrid" 200
# Entries that follow it in the thread may be found too, but must rank lower.
same "hybrid: finds it first" "[$id]" "$(json '[hit["id"] for hit in body["results"][:1]]')"
send POST /v1/contexts/search/semantic '{"query": "billing", "thread_id": "'"$THREAD"'"}'
if [[ $status != 200 ]]; then
    # Without an embedding model the route says so.
    same "semantic without a model: reason" FEATURE_UNAVAILABLE "$(json 'body["reason"]')"
fi

# --- threads and statistics -----------------------------------------------------------
call GET '/v1/threads?limit=1000'
expect "threads" 200
same "threads: ours is there" true "$(json "any(t['thread_id'] == '$THREAD' for t in body['threads'])")"
call GET '/v1/threads?limit=0'
problem "threads with a limit out of range" 400 INVALID_ARGUMENT
call GET /v1/statistics
expect "statistics" 200
same "statistics: full text is available" true "$(json 'body["fts"]["available"]')"

# --- changes: a list, a long poll, a stream -----------------------------------------------
# until_true WHAT COMMAND... : waits up to 60 s for the command to succeed.
until_true() {
    local what=$1 deadline=$((SECONDS + 60))
    shift
    checks=$((checks + 1))
    until "$@"; do
        ((SECONDS < deadline)) || { fail "not within 60 s: $what"; return 1; }
        sleep 0.05
    done
}

waits() { curl --silent --max-time 30 "$BASE/metrics" | grep -q '^context_waiting_lists [1-9]'; }

# events FILE EXPRESSION : prints a Python expression over the frames of a stream, called
# `events`: (event, id, data) each. A frame that is not complete is left out.
events() {
    python3 -c '
import json, sys
events = []
for block in open(sys.argv[1], encoding="utf-8").read().split("\n\n")[:-1]:
    fields = dict(line.split(": ", 1) for line in block.splitlines())
    if "event" in fields:
        events.append((fields["event"], fields.get("id"), json.loads(fields["data"])))
value = eval(sys.argv[2])
print(value if isinstance(value, str) else json.dumps(value))' "$1" "$2" 2>/dev/null || echo "not there: $2"
}

has_events() { [[ $(events "$1" "$2") == true ]]; }

changed="thread_id=$THREAD&preview_chars=40"
call GET '/v1/changes?cursor=now'
expect "changes: from now on" 200
same "changes: none yet" '[]' "$(json 'body["changes"]')"
cursor=$(json 'body["next_cursor"]')
call GET "/v1/changes?cursor=$cursor&wait_ms=50"
expect "changes: the end of a wait is a normal reply" 200
same "changes: nothing came" '[[], false]' "$(json '[body["changes"], body["has_more"]]')"

curl --silent --max-time 40 "$BASE/v1/changes?cursor=$cursor&wait_ms=25000&$changed" >"$WORK/waited" &
waiting=$!
until_true "the list waits" waits
send POST /v1/contexts '{"thread_id": "'"$THREAD"'", "source": "user", "text": "A change to wait for.", "tags": ["watched"]}'
expect "changes: store while a list waits" 201
watched=$(json 'body["context_id"]')
wait "$waiting"
mv "$WORK/waited" "$WORK/body"
same "changes: the list that waited has it" '[["created", "context", "'"$watched"'", 1, true, "A change to wait for."]]' \
    "$(json '[[c[k] for k in ("operation", "entity", "id", "version", "commit_end", "preview")] for c in body["changes"]]')"
after=$(json 'body["next_cursor"]')

curl --silent --no-buffer --max-time 60 --dump-header "$WORK/headers" \
    "$BASE/v1/watch?snapshot=true&tag=watched&$changed" >"$WORK/stream" &
stream=$!
until_true "the snapshot ends" has_events "$WORK/stream" 'events[-1][0] == "snapshot_end"'
same "watch: content type" text/event-stream "$(header content-type)"
same "watch: the snapshot, without ids before its end" \
    '[["opened", null], ["entry", "'"$watched"'", null], ["snapshot_end", true]]' \
    "$(events "$WORK/stream" '[[e[0], e[1]] if e[0] == "opened" else [e[0], e[2]["id"], e[1]] if e[0] == "entry" else [e[0], bool(e[1])] for e in events]')"
send PATCH "/v1/contexts/$watched" '{"text": "Changed while watched."}'
expect "watch: change it" 200
send PATCH "/v1/contexts/$watched" '{"tags": []}'
expect "watch: change its tags" 200
until_true "the stream has both changes" has_events "$WORK/stream" 'len(events) == 5'
kill "$stream"
wait "$stream" 2>/dev/null
same "watch: a change, and that it left" '[["change", "updated", 2], ["left", "left", null]]' \
    "$(events "$WORK/stream" '[[e[0], e[2]["operation"], e[2].get("version")] for e in events[3:]]')"
# The id of an event continues after it, also on another stream.
curl --silent --no-buffer --max-time 60 --header "Last-Event-ID: $(events "$WORK/stream" 'events[2][1]')" \
    "$BASE/v1/watch?$changed" >"$WORK/again" &
stream=$!
until_true "a later stream has both changes" has_events "$WORK/again" 'len(events) == 3'
kill "$stream"
wait "$stream" 2>/dev/null
same "watch: it continues without loss" "$(events "$WORK/stream" '[[e[2]["revision"]] for e in events[3:]]')" \
    "$(events "$WORK/again" '[[e[2]["revision"]] for e in events[1:]]')"
call GET "/v1/changes?cursor=$after&$changed"
same "changes: the list has the same" "$(events "$WORK/again" '[[e[2]["revision"], e[2]["operation"]] for e in events[1:]]')" \
    "$(json '[[c["revision"], c["operation"]] for c in body["changes"]]')"

for query in cursor=garbled "cursor=${after%?}" "cursor=${after}A"; do
    call GET "/v1/changes?$query"
    problem "changes: $query" 400 CURSOR_INVALID
    call GET "/v1/watch?$query"
    problem "watch: $query" 400 CURSOR_INVALID
done
for query in limit=0 limit=1001 wait_ms=25001 preview_chars=1001 entity=thread min_revision=-1 surprise=1 metadata_filters=x; do
    call GET "/v1/changes?$query"
    problem "changes: $query" 400 INVALID_ARGUMENT
done
for query in 'cursor=now&snapshot=true' limit=1 wait_ms=1 entity=thread include_body=maybe; do
    call GET "/v1/watch?$query"
    problem "watch: $query" 400 INVALID_ARGUMENT
done
call GET /v1/watch --header "Last-Event-ID: garbled"
problem "watch: a garbled Last-Event-ID" 400 CURSOR_INVALID

# --- delete ---------------------------------------------------------------------------
call DELETE "/v1/contexts/$id"
expect "delete" 200
same "delete: one" 1 "$(json 'body["deleted_count"]')"
call DELETE "/v1/contexts/$id"
expect "delete again" 200
same "delete again: none" 0 "$(json 'body["deleted_count"]')"
send POST /v1/contexts/delete '{"context_ids": ['"$once"']}'
expect "delete by id" 200
send POST /v1/contexts/delete '{"context_ids": ['"$once"'], "thread_id": "'"$THREAD"'"}'
problem "delete by ids and thread at once" 400 INVALID_ARGUMENT
send POST /v1/contexts/batch-delete '{"source": "user"}'
problem "delete by source alone" 400 INVALID_ARGUMENT
send POST /v1/contexts/batch-delete '{"thread_ids": ["'"$THREAD"'"], "source": "agent"}'
expect "delete by criteria" 200
same "delete by criteria: the two of the batch" 2 "$(json 'body["deleted_count"]')"
send POST /v1/contexts/delete '{"thread_id": "'"$THREAD"'"}'
expect "delete the thread" 200

# --- artifacts ------------------------------------------------------------------------
send POST /v1/artifacts '{"content": "# Curl walk\n\nold line\n", "metadata": {"n": 1}}'
expect "create an artifact" 201
artifact=$(json 'body["id"]')
same "create: the title is the heading" "Curl walk" "$(json 'body["title"]')"
same "create: Location" "/v1/artifacts/$artifact" "$(header location)"
send PATCH "/v1/artifacts/$artifact" '{"edits": [{"old_str": "old", "new_str": "new"}]}' --header 'If-Match: "1"'
expect "edit an artifact" 200
same "edit: ETag" '"2"' "$(header etag)"
send PATCH "/v1/artifacts/$artifact" '{"content": "x"}' --header 'If-Match: "1"'
problem "edit a version that is old" 412 VERSION_MISMATCH
call GET "/v1/artifacts/$artifact"
expect "fetch an artifact" 200
call GET "/v1/artifacts/$artifact" --header 'If-None-Match: "2"'
expect "fetch an artifact that is known" 304
call GET '/v1/artifacts?limit=1'
expect "list artifacts" 200
call GET '/v1/artifacts/search?query=CURL%20walk'
expect "search artifacts" 200
same "search: newest first" "$artifact" "$(json 'body["result"][0]["id"]')"
call GET '/v1/artifacts/search?query=line%20of%20the%20curl&mode=ranked'
expect "search artifacts by words and by meaning" 200
same "ranked search: finds it first" "$artifact" "$(json 'body["result"][0]["id"]')"
call GET '/v1/artifacts?metadata_filters=%5B%7B%22key%22%3A%22n%22%2C%22value%22%3A1%7D%5D'
expect "list artifacts by metadata" 200
same "list by metadata: the artifact" "$artifact" "$(json 'body["result"][0]["id"]')"
send POST /v1/contexts/search/hybrid '{"query": "curl walk", "include": ["artifacts"]}'
expect "hybrid over artifacts" 200
same "hybrid over artifacts: finds it" "$artifact" "$(json 'body["results"][0]["artifact_id"]')"
call GET "/v1/artifacts/$artifact/versions"
expect "list versions" 200
same "versions: one earlier" 1 "$(json 'body["recent_versions"][0]["version"]')"
call GET "/v1/artifacts/$artifact/versions/1"
expect "fetch a version" 200
call GET "/v1/artifacts/$artifact/versions/9"
problem "fetch a version that does not exist" 404 ARTIFACT_VERSION_NOT_FOUND
call GET "/v1/artifacts/$artifact/diff?from_version=1"
expect "compare versions" 200
same "compare: what differs" '["content"]' "$(json 'body["changes"]')"
call POST "/v1/artifacts/$artifact/versions/1/restore"
expect "restore a version" 200
same "restore: a new version" 3 "$(json 'body["current_version"]')"
send PATCH "/v1/artifacts/$artifact" '{"path": "/curl walk/a&b"}'
expect "give an artifact a path" 200
same "path: no version" '"3"' "$(header etag)"
call GET '/v1/artifacts/by-path?path=%2Fcurl%20walk%2Fa%26b'
expect "fetch an artifact by its path" 200
same "by path: the artifact" "$artifact" "$(json 'body["id"]')"
send POST /v1/artifacts '{"content": "x", "path": "/curl walk/a&b"}'
problem "create another with this path" 409 PATH_TAKEN
call GET '/v1/artifacts?path_prefix=%2Fcurl%20walk%2F'
expect "list artifacts by the beginning of their path" 200
same "list by path: the artifact" "$artifact" "$(json 'body["result"][0]["id"]')"
send POST /v1/artifacts/move '{"path": "/curl walk", "to": "/walked"}'
expect "move artifacts" 200
same "move: one" 1 "$(json 'body["moved_count"]')"
send POST /v1/artifacts/delete '{"path": "/curl walk"}'
expect "delete artifacts by path" 200
same "delete by path: none is left there" 0 "$(json 'body["deleted_count"]')"
call DELETE "/v1/artifacts/$artifact"
expect "delete an artifact" 200
call DELETE "/v1/artifacts/$artifact"
problem "delete an artifact again" 404 ARTIFACT_NOT_FOUND
call GET /v1/artifacts/42
problem "fetch what is no artifact's id" 400 INVALID_ARGUMENT

# --- keys (without authentication only the Unix socket and the command line manage them) ---
send POST /v1/api-keys '{"name": "curl walk", "scopes": ["read"]}'
problem "make a key while AUTH is off" 409 FEATURE_UNAVAILABLE
call GET /v1/api-keys
problem "list keys while AUTH is off" 409 FEATURE_UNAVAILABLE

# --- around the operations -------------------------------------------------------------
for path in /healthz /readyz /openapi.json /metrics; do
    call GET "$path"
    expect "GET $path" 200
done
call GET /v1/no-such-route
problem "a route that does not exist" 404 NOT_FOUND
call PUT /v1/threads
problem "a method that the route does not have" 405 METHOD_NOT_ALLOWED
same "405 names the methods" true "$(header allow | grep -q GET && echo true)"

if [[ $failures == 0 ]]; then
    echo "curl: all $checks checks passed"
else
    echo "curl: $failures of $checks checks failed" >&2
    exit 1
fi
