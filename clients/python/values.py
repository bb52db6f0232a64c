"""Converts metadata between Python and protobuf."""

import json

from context.v1 import value_pb2
from google.protobuf import struct_pb2


def to_object(members):
    """The message of a dictionary. Integers stay integers. Values deeper than about 30 levels need json_value, because
    protobuf decoders refuse messages that are nested more than about 100 deep (proto/context/v1/value.proto)."""
    return value_pb2.Object(fields={key: to_value(value) for key, value in members.items()})


def to_value(value):
    """The message of a JSON value."""
    match value:
        case None:
            return value_pb2.Value(null_value=struct_pb2.NULL_VALUE)
        case bool():
            return value_pb2.Value(bool_value=value)
        case int():
            return value_pb2.Value(int_value=value)
        case float():
            return value_pb2.Value(double_value=value)
        case str():
            return value_pb2.Value(string_value=value)
        case list():
            return value_pb2.Value(list_value=value_pb2.ListValue(values=[to_value(inner) for inner in value]))
        case dict():
            return value_pb2.Value(object_value=to_object(value))
    raise TypeError(f"not a JSON value: {value!r}")


def from_object(message):
    """The dictionary of an Object message."""
    return {key: from_value(value) for key, value in message.fields.items()}


def from_value(value):
    """The Python value of a Value message."""
    match value.WhichOneof("kind"):
        case "list_value":
            return [from_value(inner) for inner in value.list_value.values]
        case "object_value":
            return from_object(value.object_value)
        case "json_value":
            return json.loads(value.json_value)
        case "null_value" | None:
            return None
        case kind:
            return getattr(value, kind)
