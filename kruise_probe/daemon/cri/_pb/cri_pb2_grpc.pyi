# Made by hack/gen_cri; do not edit.
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from kruise_probe.daemon.cri._pb import cri_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]

class RuntimeServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    Version: grpc.aio.UnaryUnaryMultiCallable[pb.VersionRequest, pb.VersionResponse]
    Status: grpc.aio.UnaryUnaryMultiCallable[pb.StatusRequest, pb.StatusResponse]
    ListPodSandbox: grpc.aio.UnaryUnaryMultiCallable[pb.ListPodSandboxRequest, pb.ListPodSandboxResponse]
    PodSandboxStatus: grpc.aio.UnaryUnaryMultiCallable[pb.PodSandboxStatusRequest, pb.PodSandboxStatusResponse]
    ListContainers: grpc.aio.UnaryUnaryMultiCallable[pb.ListContainersRequest, pb.ListContainersResponse]
    ContainerStatus: grpc.aio.UnaryUnaryMultiCallable[pb.ContainerStatusRequest, pb.ContainerStatusResponse]
    StopContainer: grpc.aio.UnaryUnaryMultiCallable[pb.StopContainerRequest, pb.StopContainerResponse]
    ExecSync: grpc.aio.UnaryUnaryMultiCallable[pb.ExecSyncRequest, pb.ExecSyncResponse]

class RuntimeServiceServicer:
    async def Version(self, request: pb.VersionRequest, context: Context) -> pb.VersionResponse: ...
    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse: ...
    async def ListPodSandbox(self, request: pb.ListPodSandboxRequest, context: Context) -> pb.ListPodSandboxResponse: ...
    async def PodSandboxStatus(self, request: pb.PodSandboxStatusRequest, context: Context) -> pb.PodSandboxStatusResponse: ...
    async def ListContainers(self, request: pb.ListContainersRequest, context: Context) -> pb.ListContainersResponse: ...
    async def ContainerStatus(self, request: pb.ContainerStatusRequest, context: Context) -> pb.ContainerStatusResponse: ...
    async def StopContainer(self, request: pb.StopContainerRequest, context: Context) -> pb.StopContainerResponse: ...
    async def ExecSync(self, request: pb.ExecSyncRequest, context: Context) -> pb.ExecSyncResponse: ...

def add_RuntimeServiceServicer_to_server(
    servicer: RuntimeServiceServicer, server: grpc.aio.Server
) -> None: ...
