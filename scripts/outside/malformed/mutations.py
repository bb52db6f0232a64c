"""Ways to make a JSON request malformed, from a wrong value to bytes that are not JSON."""

import copy
import json

# Values that have broken parsers, databases and languages in the past.
NASTY = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    0.1,
    -0.0,
    1e308,
    1e-320,
    "",
    " ",
    "\t\n\u2003",
    "\u0000",
    "a\u0000b",
    "\ud800",
    "\udfff\ud800",
    "\uffff",
    "\u202e\u0301",
    "🙂" * 64,
    "x" * 257,
    "x" * 70_000,
    "'; DROP TABLE contexts; --",
    '"* NEAR(',
    "%_\\",
    "$.a[0]",
    "../../etc/passwd",
    "${HOME}",
    "0x10",
    "1e3",
    "01",
    " 1 ",
    "NaN",
    "2025-02-30",
    "2025-11-29T25:00:00Z",
    "9999-12-31T23:59:59.999999999+23:59",
    "-0001-01-01",
    [],
    {},
    [None],
    [[]],
    [{}],
    {"": None},
    {"$ref": "#/"},
    {"__proto__": {"a": 1}},
    {"a.b": 1, "a": {"b": 2}},
]


def nest(depth, kind):
    """Arrays or objects nested `depth` times, as text."""
    return "[" * depth + "]" * depth if kind == "array" else '{"a":' * depth + "1" + "}" * depth


def paths_of(value, here=()):
    """Every path inside a JSON value, the root included."""
    yield here
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_of(inner, (*here, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths_of(inner, (*here, index))


def replace(value, path, new):
    """`value` with `new` at `path`."""
    if not path:
        return new
    value = copy.deepcopy(value)
    at = value
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = new
    return value


def spoil_value(rng, value):
    """A JSON value one or two changes away from a valid one."""
    for _ in range(rng.choice([1, 1, 1, 2])):
        path = rng.choice(list(paths_of(value)))
        act = rng.randrange(10)
        at = value
        for step in path:
            at = at[step]
        if act < 6:
            value = replace(value, path, copy.deepcopy(rng.choice(NASTY)))
        elif act < 7 and isinstance(at, dict):
            value = replace(value, path, {**at, rng.choice(["surprise", "", "\u0000", "x" * 5000, "limit", "context_id"]): rng.choice(NASTY)})
        elif act < 8 and isinstance(at, dict) and at:
            gone = rng.choice(list(at))
            value = replace(value, path, {key: inner for key, inner in at.items() if key != gone})
        elif act < 9 and isinstance(at, list) and at:
            value = replace(value, path, at * rng.choice([2, 200, 2000]))
        elif path:
            value = replace(value, path, [at])
    return value


def spoil_bytes(rng, body):
    """Bytes made from valid JSON."""
    act = rng.randrange(9)
    if act == 0:
        return body[: rng.randrange(len(body) + 1)]
    if act == 1:
        at = rng.randrange(len(body) + 1)
        return body[:at] + rng.randbytes(rng.choice([1, 3, 40])) + body[at:]
    if act == 2:
        return rng.randbytes(rng.choice([0, 1, 7, 300, 5000]))
    if act == 3:
        return nest(rng.choice([65, 129, 1000, 100_000]), rng.choice(["array", "object"])).encode()
    if act == 4:
        return body + rng.choice([b"x", b"{}", b"\x00", b",", b"\n\n" + body])
    if act == 5:
        return body.replace(b":", rng.choice([b"::", b"", b"=", b":\xff"]), 1)
    if act == 6:
        return b"\xef\xbb\xbf" + body
    if act == 7:
        return body.decode("utf-8", "replace").encode(rng.choice(["utf-16", "utf-32", "utf-7"]))
    # Literals that JSON does not have, and duplicate keys.
    return body.replace(b"}", rng.choice([b', "limit": NaN}', b', "limit": 01}', b', "text": "a", "text": "b"}', b",}", b', "limit": 1e99999}']), 1)


def to_bytes(value):
    """JSON text. Lone surrogates stay escaped, as some clients write them."""
    return json.dumps(value).encode("ascii")


def spoil(rng, value):
    """The body of a malformed request, made from a valid one."""
    if rng.random() < 0.6:
        return to_bytes(spoil_value(rng, value))
    return spoil_bytes(rng, to_bytes(value))
