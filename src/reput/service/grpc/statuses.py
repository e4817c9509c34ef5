"""Statuses of gRPC calls (`ResponseBuilder`, `ResponseWriter`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reput.errors import ReputError
from reput.remoting.codes import ResponseCode
from reput.remoting.grpc.grpc_codes import Code
from reput.remoting.grpc.grpc_parts import Status

#: The status of an answer to a request of the remoting protocol; of any other code INTERNAL_SERVER_ERROR.
_CODES: Mapping[int, Code] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
}


class RefusedCallError(ReputError):
    """A call, or a part of it, that ends with a status of its own; `code`: of the status."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> Status:
        """The status to answer with."""
        return Status(self.code, str(self))


def ok() -> Status:
    """The status of what was done."""
    return Status(Code.OK, Code.OK.name)


def refused(code: int, remark: str | None) -> RefusedCallError:
    """The error of a request that the broker has refused."""
    return RefusedCallError(_CODES.get(code, Code.INTERNAL_SERVER_ERROR), remark or str(int(code)))


def overall(statuses: Iterable[Status | None], if_none: str) -> Status:
    """The status of an answer with several entries; `if_none`: the message if there are none."""
    codes = {status.code for status in statuses if status is not None}
    if not codes:
        return Status(Code.INTERNAL_SERVER_ERROR, if_none)
    code = Code(codes.pop()) if len(codes) == 1 else Code.MULTIPLE_RESULTS
    return Status(code, code.name)
