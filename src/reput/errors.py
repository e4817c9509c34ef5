"""The errors of reput: one hierarchy; each class says when it is raised.

What RocketMQ answers to a producer or a consumer (`PUT_OK`, `OFFSET_OVERFLOW_ONE`, ...) is a status, not an error: see
`reput.store.results`. Errors are for a caller's mistake, for damage, and for the environment. A message names the file,
what was expected and what was found, and says what to do.
"""

from __future__ import annotations

__all__ = [
    "AccessDeniedError",
    "ConfigError",
    "CorruptBackupError",
    "CorruptConsumeQueueError",
    "CorruptIndexFileError",
    "CorruptMetadataError",
    "CorruptRecordError",
    "CorruptStoreError",
    "DataLossError",
    "MQBrokerError",
    "MQClientError",
    "MessageIllegalError",
    "MissingFieldError",
    "RemotingCommandError",
    "RemotingDecodeError",
    "RemotingError",
    "RemotingTimeoutError",
    "ReplicationError",
    "ReputError",
    "StoreBusyError",
    "StoreError",
    "StoreFormatError",
    "StoreFullError",
    "StoreLockedError",
    "StorePoisonedError",
    "StoreStateError",
    "StoreSyncError",
    "SubscriptionError",
    "WouldWaitError",
]


class ReputError(Exception):
    """Raised when reput cannot do what was asked; base class of all errors below.

    `retriable` is true if the same call may succeed later without any change by the caller. `stored_messages` is the
    number of messages of a failed `put_messages` or `put_arrow` that are stored nevertheless: the first ones. `peer` is
    the server that a client did not reach, or that refused: its "host:port", or its broker name if it is registered
    nowhere; several of them are separated by `;`.
    """

    retriable: bool = False
    stored_messages: int = 0
    peer: str = ""

    def __reduce__(self) -> tuple[object, ...]:
        """With its attributes, whatever its class is made of: an error comes from a worker process by pickle."""
        return _made_again, (type(self), self.args), self.__dict__


def _made_again(kind: type[ReputError], arguments: tuple[object, ...]) -> ReputError:
    return kind.__new__(kind, *arguments)


class ConfigError(ReputError, ValueError):
    """Raised when a configuration names an unknown key, gives a wrong value, or contradicts the files of the store."""


class MessageIllegalError(ReputError, ValueError):
    """Raised when a message breaks one of RocketMQ's limits; nothing of the message was written."""


class SubscriptionError(ReputError, ValueError):
    """Raised when a consumer's subscription cannot be read; the consumer gets RocketMQ's SUBSCRIPTION_PARSE_FAILED."""


class StoreError(ReputError):
    """Raised when a store or one of its files cannot be used, and none of the classes below fits."""


class StoreStateError(StoreError):
    """Raised when the store is not started, is closed already, or was opened read-only."""


class StoreLockedError(StoreError):
    """Raised when another store, in this or another process, holds the lock of the directory."""


class StoreFullError(StoreError):
    """Raised when the disk has no space for a write; the store stays open, and writes again once there is space."""

    retriable = True


class StoreBusyError(StoreError):
    """Raised when the disk does not keep up, and a put would wait too long for the append lock; nothing was written
    except `stored_messages`.

    RocketMQ's status OS_PAGE_CACHE_BUSY.
    """

    retriable = True


class StorePoisonedError(StoreError):
    """Raised when a sync has failed earlier: nothing more is accepted until a new start recovers the store."""


class StoreSyncError(StoreError):
    """Raised when a sync fails: the disk may lack what was written, although it can be read; retrying proves nothing.

    Linux counts pages that it could not write as written, and a later sync succeeds without them.
    """


class WouldWaitError(ReputError):
    """Raised when a thread that may not wait for the disk (`NeverWaiting`) would have to; another one may do it again.

    `room` is the number of bytes for which the log needs room (`LoopWriter.make_room`); 0 if it is not the log.
    """

    def __init__(self, text: str, room: int = 0) -> None:
        super().__init__(text)
        self.room = room


class ReplicationError(StoreError):
    """Raised when a store cannot follow its master: it has more, or other bytes, or the next bytes are gone there."""


class DataLossError(StoreError):
    """Raised when a stream cannot go on: unread records were deleted, or records that it has read are gone."""


class StoreFormatError(StoreError):
    """Raised when a directory is no store, holds a foreign file, or files of another size than the configured one."""


class CorruptStoreError(StoreError):
    """Raised when stored bytes contradict themselves; the five classes below say in which kind of file.

    `path` names the file. `offset` locates the first wrong byte or record: a commit log offset for a record, else the
    position in the file. `reason` says what was expected and found.
    """

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: damaged at offset {self.offset}: {self.reason}"


class CorruptRecordError(CorruptStoreError):
    """Raised when a commit log record does not prove itself: size, magic code, own offset, lengths or body CRC."""


class CorruptConsumeQueueError(CorruptStoreError):
    """Raised when a consume queue holds a unit that no dispatch of its commit log could have written."""


class CorruptIndexFileError(CorruptStoreError):
    """Raised when an index file's header, slots or chains contradict each other."""


class CorruptMetadataError(CorruptStoreError):
    """Raised when the checkpoint or a JSON file of the store does not have the content that it should have."""


class CorruptBackupError(CorruptStoreError):
    """Raised when an object of a backup is missing, or differs from its manifest."""


class RemotingError(ReputError):
    """Raised when a peer on the network cannot be talked to, and none of the classes below fits."""


class RemotingTimeoutError(RemotingError):
    """Raised when a peer does not answer a request in time."""

    retriable = True


class RemotingDecodeError(RemotingError):
    """Raised when bytes from the network are no frame of RocketMQ's protocol; the connection is then closed.

    `answer` is what a peer of another protocol is sent before, empty if nobody would see it; None for any other.
    """

    answer: bytes | None = None


class RemotingCommandError(RemotingError):
    """Raised when a request cannot be done: the peer is answered with `code` (`ResponseCode`) and `remark`."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(code, remark)
        self.code = code
        self.remark = remark

    def __str__(self) -> str:
        return f"code {self.code}: {self.remark}"


class MissingFieldError(RemotingCommandError):
    """Raised when a request lacks a field that it must have; `field` is its name on the wire."""

    def __init__(self, code: int, remark: str, field: str) -> None:
        super().__init__(code, remark)
        self.field = field


class MQClientError(ReputError):
    """Raised when a producer or a consumer cannot do what was asked: no route, no broker that took it, not started."""


class MQBrokerError(RemotingError):
    """Raised when a broker or a name server refuses a request of a client.

    `address` says which one; `code` (`ResponseCode`) and `remark` are its answer.
    """

    def __init__(self, address: str, code: int, remark: str) -> None:
        super().__init__(address, code, remark)
        self.address = self.peer = address
        self.code = code
        self.remark = remark

    def __str__(self) -> str:
        return f"{self.address} answers code {self.code}: {self.remark.strip()}"


class AccessDeniedError(MQBrokerError):
    """Raised when a broker does not know who asks, finds a wrong signature, or does not let this user do it."""

    def __str__(self) -> str:
        return f"{super().__str__()}; give the access key and the secret key of a user who may do this"
