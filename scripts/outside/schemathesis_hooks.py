"""What the OpenAPI document cannot tell schemathesis."""

import schemathesis

INT64_MAX = 2**63 - 1


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """Lowers a good `min_revision` to one that is reached already.

    One that no reply gave yet is refused: right for a client, but here it
    looks like a fault. A bad one stays as it is."""
    for values in (case.query, case.body):
        if isinstance(values, dict) and _future(values.get("min_revision")):
            values["min_revision"] = 0


@schemathesis.hook
def filter_query(_context, query):
    """Leaves out what is meant as a bad query and is a good one when it is sent.

    In a query string 4 and [4] are the same, and {} and [] are nothing at all."""
    if not isinstance(query, dict):
        return True
    return not any(value == {} or value == [] for value in query.values()) and not isinstance(query.get("ids"), int)


def _future(value):
    try:
        return not isinstance(value, (bool, float)) and 0 < int(value) <= INT64_MAX
    except (TypeError, ValueError):
        return False
