"""Keeps the long-term memory of LangGraph in the context service.

    graph = builder.compile(store=ContextStore(Service("127.0.0.1:7420")))

An item is the artifact at `<root>/<namespace>/<key>`, and its value is metadata. Every version of a value is kept.
"""

import itertools
import json
import re
from datetime import timezone
from operator import ge, gt, le, lt

import errors
import grpc
import values
from context.v1 import artifact_service_pb2 as pb, context_pb2, context_service_pb2
from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, PutOp, SearchItem, SearchOp, get_text_at_path
from service import Service, finished

CONTENT_CHARS, QUERY_CHARS = 100_000, 10_000  # Longer texts are cut.
LIST_PAGE, SEARCH_PAGE, SEARCH_DEPTH = 50, 100, 10_000  # The service's limits.
COMPARED = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
OPERATORS = {"$eq": "eq", "$gt": "gt", "$gte": "gte", "$lt": "lt", "$lte": "lte"}


class ContextStore(BaseStore):
    """A `BaseStore`. A search with a query is a hybrid search: by words, and by meaning if the service has a model.

    `fields` are the parts of a value that such searches see, unless `put` says otherwise. Without them it is the whole
    value.
    """

    def __init__(self, service: Service, *, root="langgraph", fields=None):
        self._service, self._root, self._fields = service, root, fields or ["$"]

    def batch(self, ops):
        ops = list(ops)
        # As in LangGraph's own stores, reads see what was there before the batch, and the last write of a key counts.
        results = [self._result(op) for op in ops]
        for op in {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}.values():
            self._put(op)
        return results

    async def abatch(self, ops):
        return await finished(self.batch, ops)

    def _result(self, op):
        match op:
            case GetOp():
                found = self._at(self._path(op.namespace, op.key))
                return found and Item(**self._fields_of(found))
            case SearchOp():
                return self._search(op)
            case ListNamespacesOp():
                return self._namespaces(op)
            case PutOp():
                return None
        raise ValueError(f"unknown operation: {type(op).__name__}")

    def _put(self, op):
        path = self._path(op.namespace, op.key)
        while True:
            found = self._at(path)
            try:
                if op.value is not None:
                    self._write(found, path, op)
                elif found:
                    self._service.write(self._service.artifacts.DeleteArtifact, pb.DeleteArtifactRequest(artifact_id=found.id))
                return
            except grpc.RpcError as error:
                # Another caller has created or deleted the item in between: read it again.
                if errors.reason(error) not in ("PATH_TAKEN", "ARTIFACT_NOT_FOUND"):
                    raise

    def _write(self, found, path, op):
        value = dict(op.value)
        fields = self._fields if op.index is None else op.index or []
        words = "\n".join(text for field in fields for text in get_text_at_path(value, field))
        text = _cut(words, CONTENT_CHARS)
        # Searches cannot filter by the path of an artifact, so the metadata repeats it.
        metadata = values.to_object({"path": path, "searchable": text != ""})
        metadata.fields["value"].json_value = json.dumps(value, allow_nan=False)
        given = {"content": text or "(not searchable)", "title": op.key[:200], "metadata": metadata}
        if found:
            request = pb.UpdateArtifactRequest(artifact_id=found.id, return_content=False, **given)
            self._service.write(self._service.artifacts.UpdateArtifact, request)
        else:
            self._service.write(self._service.artifacts.CreateArtifact, pb.CreateArtifactRequest(path=path, **given))

    def _search(self, op):
        # The service's filters ignore case and cannot express every condition, so each item is checked again below.
        conditions, filters = op.filter or {}, []
        for key, wanted in conditions.items():
            narrowing = list(_metadata_filters(f"value.{key}", wanted))
            filters += narrowing if re.fullmatch(r"[\w-]{1,500}", key, re.ASCII) else []
        enough = op.offset + op.limit
        size = SEARCH_PAGE if conditions else max(1, enough)
        query = _cut(op.query or "", QUERY_CHARS)
        items = self._ranked(op.namespace_prefix, query, filters, size) if query else self._listed(op.namespace_prefix, filters, size)
        matching = (item for item in items if all(_matches(item.value.get(key), wanted) for key, wanted in conditions.items()))
        return list(itertools.islice(matching, op.offset, enough))

    def _listed(self, namespace_prefix, filters=(), size=LIST_PAGE):
        """The items of a namespace and those below it, newest first."""
        prefix = self._path(namespace_prefix, "")
        request = pb.ListArtifactsRequest(path_prefix=prefix, metadata_filters=filters, limit=min(size, LIST_PAGE))
        while True:
            page = self._service.read(self._service.artifacts.ListArtifacts, request)
            yield from (SearchItem(**self._fields_of(found)) for found in page.artifacts)
            if not page.has_more:
                return
            request.cursor = page.next_cursor

    def _ranked(self, namespace_prefix, query, filters, size):
        """The items that a query finds, best first."""
        prefix = self._path(namespace_prefix, "")
        filters = [*filters, _filter("path", "starts_with", prefix), _filter("searchable", "eq", True)]
        request = context_service_pb2.HybridSearchContextRequest(query=query, limit=min(size, SEARCH_PAGE))
        request.filter.metadata_filters.extend(filters)
        request.include.values.append("artifacts")
        for request.offset in range(0, SEARCH_DEPTH + 1, request.limit):
            page = self._service.read(self._service.contexts.HybridSearchContext, request)
            yield from (SearchItem(**self._fields_of(hit), score=hit.relevance) for hit in page.results if hit.path.startswith(prefix))
            if not page.has_more:
                return

    def _namespaces(self, op):
        conditions = op.match_conditions or ()
        prefixes = [tuple(itertools.takewhile(lambda name: name != "*", one.path)) for one in conditions if one.match_type == "prefix"]
        # No operation lists namespaces, so all items below the longest prefix are read.
        found = {item.namespace for item in self._listed(max(prefixes, key=len, default=()))}
        found = {namespace[: op.max_depth] for namespace in found if all(_meets(namespace, one) for one in conditions)}
        return sorted(found)[op.offset : op.offset + op.limit]

    def _at(self, path):
        try:
            return self._service.read(self._service.artifacts.GetArtifact, pb.GetArtifactRequest(path=path)).artifact
        except grpc.RpcError as error:
            if errors.reason(error) != "ARTIFACT_NOT_FOUND":
                raise
            return None

    def _path(self, namespace, key):
        names = (name.replace("%", "%25").replace("/", "%2F") for name in (*namespace, key))
        return "/".join([self._root, *names])

    def _fields_of(self, found):
        """The fields of the item that an artifact stores."""
        *namespace, key = (name.replace("%2F", "/").replace("%25", "%") for name in found.path[len(self._root) + 1 :].split("/"))
        value = values.from_value(found.metadata.fields["value"]) or {}
        times = {name: getattr(found, name).ToDatetime(timezone.utc) for name in ("created_at", "updated_at")}
        return {"namespace": tuple(namespace), "key": key, "value": value, **times}


def _cut(text, chars):
    """The beginning of a text, trimmed and without U+0000: the service refuses U+0000 and blank texts."""
    return text.replace("\0", "")[:chars].strip()


def _filter(key, operator, wanted):
    return context_pb2.MetadataFilter(key=key, operator=operator, value=values.to_value(wanted))


def _metadata_filters(key, wanted):
    """The filters for the part of a condition that the service can check."""
    for operator, operand in (wanted if _has_operators(wanted) else {"$eq": wanted}).items():
        if operator in OPERATORS and _can_be_sent(operator, operand):
            yield _filter(key, OPERATORS[operator], operand)
        # A missing field meets LangGraph's `$ne`, but not the service's `ne`.
        elif operator not in OPERATORS and operator != "$ne":
            raise ValueError(f"unknown operator: {operator}")


def _can_be_sent(operator, operand):
    """Whether the service has this comparison. It refuses U+0000, infinite numbers and integers beyond 64 bits, and it
    does not order booleans."""
    if isinstance(operand, bool):
        return operator == "$eq"
    if isinstance(operand, str):
        return "\0" not in operand
    return isinstance(operand, int | float) and -(2**63) <= operand < 2**63


def _has_operators(wanted):
    return isinstance(wanted, dict) and any(name.startswith("$") for name in wanted)


def _matches(value, wanted):
    """LangGraph's rules for a condition."""
    if _has_operators(wanted):
        return all(_compare(value, operator, operand) for operator, operand in wanted.items())
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(_matches(value.get(name), inner) for name, inner in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_matches, value, wanted))
    return value == wanted


def _compare(value, operator, operand):
    if operator in ("$eq", "$ne"):
        return (value == operand) == (operator == "$eq")
    comparable = any(isinstance(value, kind) and isinstance(operand, kind) for kind in (str, (int, float)))
    return comparable and COMPARED[operator](value, operand)


def _meets(namespace, condition):
    """Whether a namespace has the prefix or suffix that the condition requires."""
    path = condition.path
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return len(part) == len(path) and all(name in ("*", own) for name, own in zip(path, part))
