"""Stores, reads and deletes an entry, with only the address given. The messages and
methods come from server reflection.

    python3 clients/python/reflect.py [127.0.0.1:7420 or https://host:port]
"""

import sys

from channel import open_channel
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

# The v1 messages equal those of v1alpha, and only v1alpha has a Python package.
from grpc_reflection.v1alpha import reflection_pb2

REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
TIMEOUT_S = 30


class Reflected:
    """The services behind a channel, as reflection describes them."""

    def __init__(self, channel):
        self.channel = channel
        self._ask = channel.stream_stream(
            REFLECTION,
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        self.pool = descriptor_pool.DescriptorPool()
        self._loaded = set()

    def services(self):
        """The full names of all services."""
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        return sorted(service.name for service in self._one(request).list_services_response.service)

    def call(self, service, method, arguments):
        """Calls a unary method with a dictionary and returns the reply as a dictionary."""
        self._load(reflection_pb2.ServerReflectionRequest(file_containing_symbol=service))
        described = self.pool.FindServiceByName(service).FindMethodByName(method)
        request_type = message_factory.GetMessageClass(described.input_type)
        reply_type = message_factory.GetMessageClass(described.output_type)
        invoke = self.channel.unary_unary(
            f"/{service}/{method}", request_serializer=request_type.SerializeToString, response_deserializer=reply_type.FromString
        )
        reply = invoke(json_format.ParseDict(arguments, request_type()), timeout=TIMEOUT_S)
        return json_format.MessageToDict(reply, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)

    def _one(self, request):
        (reply,) = self._ask(iter([request]), timeout=TIMEOUT_S)
        assert not reply.HasField("error_response"), reply.error_response
        return reply

    def _load(self, request):
        files = [descriptor_pb2.FileDescriptorProto.FromString(data) for data in self._one(request).file_descriptor_response.file_descriptor_proto]
        by_name = {file.name: file for file in files}
        for file in files:
            self._add(file, by_name)

    def _add(self, file, by_name):
        if file.name in self._loaded:
            return
        self._loaded.add(file.name)
        for dependency in file.dependency:
            if dependency in by_name:
                self._add(by_name[dependency], by_name)
            elif dependency not in self._loaded:
                self._load(reflection_pb2.ServerReflectionRequest(file_by_filename=dependency))
        self.pool.Add(file) if hasattr(self.pool, "Add") else self.pool.AddSerializedFile(file.SerializeToString())


def main():
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7420"
    contexts = "context.v1.ContextService"
    with open_channel(address) as channel:
        reflected = Reflected(channel)
        services = reflected.services()
        assert contexts in services and "grpc.health.v1.Health" in services, services

        health = reflected.call("grpc.health.v1.Health", "Check", {"service": contexts})
        assert health["status"] == "SERVING", health

        entry = {
            "thread_id": "python-reflection",
            "source": "user",
            "text": "Described by the server itself.",
            "metadata": {"fields": {"attempts": {"int_value": "3"}}},
        }
        # Protobuf's JSON writes 64-bit integers as strings.
        context_id = reflected.call(contexts, "StoreContext", entry)["context_id"]
        reply = reflected.call(contexts, "GetContextByIds", {"context_ids": [context_id]})
        assert reply["contexts"][0]["text_content"] == "Described by the server itself.", reply
        assert reply["contexts"][0]["metadata"]["fields"]["attempts"] == {"int_value": "3"}, reply
        gone = reflected.call(contexts, "DeleteContext", {"context_ids": {"values": [context_id]}})
        assert gone["deleted_count"] == "1", gone
    print(f"python: stored, read and deleted through reflection ({len(services)} services described)")


if __name__ == "__main__":
    main()
