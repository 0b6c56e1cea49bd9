"""Prints type stubs for a generated `*_pb2_grpc.py`, because protoc writes stubs for messages only.

Usage: grpc_stubs.py DESCRIPTOR_SET   (a file written by protoc --descriptor_set_out)
"""

import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

HEADER = """\
# Made by hack/gen_cri; do not edit.
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from {package} import {module} as pb
"""


def message(name: str) -> str:
    return "pb." + name.rsplit(".", 1)[1]


def stub_method(method: MethodDescriptorProto) -> str:
    kind = "UnaryStreamMultiCallable" if method.server_streaming else "UnaryUnaryMultiCallable"
    types = f"[{message(method.input_type)}, {message(method.output_type)}]"
    return f"    {method.name}: grpc.aio.{kind}{types}"


def servicer_method(method: MethodDescriptorProto) -> str:
    takes = f"self, request: {message(method.input_type)}, context: Context"
    gives = message(method.output_type)
    if method.server_streaming:
        return f"    def {method.name}({takes}) -> AsyncIterator[{gives}]: ..."
    return f"    async def {method.name}({takes}) -> {gives}: ..."


def stubs_of(service: ServiceDescriptorProto) -> str:
    name = service.name
    return "\n".join(
        [
            f"class {name}Stub:",
            "    def __init__(self, channel: grpc.aio.Channel) -> None: ...",
            *map(stub_method, service.method),
            "",
            f"class {name}Servicer:",
            *map(servicer_method, service.method),
            "",
            f"def add_{name}Servicer_to_server(",
            f"    servicer: {name}Servicer, server: grpc.aio.Server",
            ") -> None: ...",
        ]
    )


def stubs(file: FileDescriptorProto) -> str:
    path = Path(file.name)
    header = HEADER.format(
        package=".".join(path.parent.parts),
        module=f"{path.stem}_pb2",
    )
    context = "Context = grpc.aio.ServicerContext[Any, Any]"
    return "\n".join(
        [
            header,
            context,
            "",
            *map(stubs_of, file.service),
        ]
    )


if __name__ == "__main__":
    descriptors = FileDescriptorSet.FromString(Path(sys.argv[1]).read_bytes())
    print("\n".join(map(stubs, descriptors.file)))
