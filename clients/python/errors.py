"""Reads the details of an error: its reason and its violations."""

from google.rpc import error_details_pb2
from grpc_status import rpc_status


def reason(error):
    """The stable reason, such as `VERSION_MISMATCH`; None when there is none."""
    info = _detail(error, error_details_pb2.ErrorInfo)
    return info.reason if info is not None and info.domain == "context-service" else None


def violations(error):
    """The invalid fields of the request: name to description. Several descriptions of a field are joined with `; `."""
    bad_request = _detail(error, error_details_pb2.BadRequest)
    fields = {}
    for violation in bad_request.field_violations if bad_request is not None else ():
        fields.setdefault(violation.field, []).append(violation.description)
    return {field: "; ".join(descriptions) for field, descriptions in fields.items()}


def _detail(error, kind):
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        if detail.Is(kind.DESCRIPTOR):
            message = kind()
            detail.Unpack(message)
            return message
    return None
