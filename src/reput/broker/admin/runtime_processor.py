"""The state of a broker, as operators ask for it (`AdminBrokerProcessor`)."""

from __future__ import annotations

from collections.abc import Mapping

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.registration import Registration
from reput.broker.slave.following import Following
from reput.broker.view import BrokerView
from reput.formats.timer_log import TIMER_TOPIC
from reput.remoting.body import encode_body
from reput.remoting.codes import VERSION, RequestCode, version_name
from reput.remoting.command import RemotingCommand
from reput.remoting.header import encode_header
from reput.remoting.namesrv_headers import ExchangeHAInfoResponseHeader
from reput.replication.ha_service import HAService
from reput.service.broker_stats_manager import BrokerStats, BrokerStatsManager
from reput.store.message_store import MessageStore
from reput.store.runtime_info import RuntimeInfo
from reput.store.timer.timer_message_store import TimerMessageStore
from reput.transport.channel import Channel
from reput.transport.request_queue import RequestQueue
from reput.transport.requests import Answer, Handler

#: Seconds of the three rates in one text.
_WINDOWS = ("10", "60", "600")
#: Texts that a broker without the thing has: no timers, no transient pool, no thread pools whose head could wait.
_NOTHING = {
    "timerReadBehind": "0", "timerOffsetBehind": "0", "timerCongestNum": "0", "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0", "remainTransientStoreBufferNumbs": "0", "pageCacheLockTimeMills": "0",
    "litePullThreadPoolQueueSize": "0", "litePullThreadPoolQueueHeadWaitTimeMills": "0", "ackThreadPoolQueueSize": "0",
    "ackThreadPoolQueueHeadWaitTimeMills": "0", "EndTransactionQueueSize": "0", "queryThreadPoolQueueSize": "0",
    "sendThreadPoolQueueHeadWaitTimeMills": "0", "pullThreadPoolQueueSize": "0",
    "pullThreadPoolQueueHeadWaitTimeMills": "0", "queryThreadPoolQueueHeadWaitTimeMills": "0",
}  # fmt: skip
#: Members of a runtime info that are texts of their own, or not RocketMQ's.
_OTHERS = ("putMessageDistributeTime", "remainHowManyDataToFlush", "putBytesPerSecond", "diskFreeBytes")


#: The half of a slave in `HARuntimeInfo`, of a master.
_NO_MASTER: dict[str, object] = {
    "lastReadTimestamp": 0, "lastWriteTimestamp": 0, "masterFlushOffset": 0, "maxOffset": 0,
    "transferredByteInSecond": 0,
}  # fmt: skip


class RuntimeProcessor:
    """Takes requests for the broker's state."""

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        store: MessageStore,
        registration: Registration,
        sending: RequestQueue,
        timers: TimerMessageStore | None,
        stats: BrokerStatsManager,
        slave: Following | None,
        ha: HAService | None,
    ) -> None:
        self._view, self._clock, self._pools, self._store = view, clock, pools, store
        self._registration, self._sending, self._timers, self._stats = registration, sending, timers, stats
        self._slave, self._ha = slave, ha
        self._first_end_offset = store.max_commit_log_offset

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.ha_info,
        }

    def ha_info(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Answer with the HA address; empty from a broker that is no master, and to one that says it is the master."""
        header = ExchangeHAInfoResponseHeader()
        if not (self._view.config.broker_id or (command.ext_fields or {}).get("masterHaAddress")):
            header = ExchangeHAInfoResponseHeader(
                self._registration.ha_address, self._first_end_offset, self._view.address
            )
        return command.response(ext_fields=encode_header(header))

    def ha_status(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The slaves of the broker, and how much of the log each lacks (`HARuntimeInfo`)."""
        ha, end = self._ha, self._store.max_commit_log_offset
        max_gap = self._view.config.ha_max_gap_not_in_sync
        slaves = [
            {
                "addr": slave.address,
                "diff": end - slave.acknowledged_offset,
                "inSync": slave.is_in_sync(end, max_gap),
                "slaveAckOffset": slave.acknowledged_offset,
                "transferFromWhere": slave.sent_offset,
                "transferredByteInSecond": 0,
            }
            for slave in (() if ha is None else ha.slaves)
        ]
        in_sync = sum(bool(slave["inSync"]) for slave in slaves)
        status = {
            "haClientRuntimeInfo": self._of_slave(), "haConnectionInfo": slaves, "inSyncSlaveNums": in_sync,
            "master": self._slave is None, "masterCommitLogMaxOffset": end,
        }  # fmt: skip
        return command.response(body=encode_body(status))

    def _of_slave(self) -> dict[str, object]:
        slave = self._slave
        if slave is None or slave.progress is None:
            return _NO_MASTER
        progress = slave.progress
        return _NO_MASTER | {
            "lastReadTimestamp": progress.heard_ms,
            "lastWriteTimestamp": progress.heard_ms,
            "masterAddr": slave.master_address,
            "maxOffset": progress.end_offset,
        }

    async def runtime_info(self, connection: Channel, command: RemotingCommand) -> Answer:
        """State of the store and of the broker, all as text; totals of messages count from its start."""
        info = await self._pools.reads.run_for(connection, self._store.runtime_info)
        config = self._view.config
        table = {
            **_of_store(info),
            **_NOTHING,
            **self._of_timers(),
            **({} if self._slave is None else {"slaveCopiesNothing": self._slave.copies_nothing or ""}),
            "brokerActive": "true",
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": version_name(VERSION),
            **_at_midnight(self._stats.totals),
            "msgPutTotalTodayNow": str(info.put_message_times_total or 0),
            "msgGetTotalTodayNow": str(sum(one.got_messages or 0 for one in info.topics)),
            "startAcceptSendRequestTimeStamp": str(config.start_accept_send_request_time_stamp),
            "sendThreadPoolQueueSize": str(len(self._sending)),
            "sendThreadPoolQueueCapacity": str(config.send_thread_pool_queue_capacity),
            "queryThreadPoolQueueCapacity": str(config.query_thread_pool_queue_capacity),
            "EndTransactionThreadPoolQueueCapacity": str(config.end_transaction_pool_queue_capacity),
        }
        return command.response(body=encode_body({"table": table}))

    def _of_timers(self) -> dict[str, str]:
        """Progress of messages with a time: seconds, messages without a slot, messages that wait."""
        timers = self._timers
        if timers is None:
            return {}
        return {
            "timerReadBehind": str(max(0, self._clock.now_ms() - timers.read_time_ms) // 1000),
            "timerOffsetBehind": str(max(0, self._store.max_offset(TIMER_TOPIC, 0) - timers.queue_offset)),
            "timerCongestNum": str(timers.total),
        }


def _of_store(info: RuntimeInfo) -> dict[str, str]:
    """The texts of a store's runtime info, by RocketMQ's names (`DefaultMessageStore.getRuntimeInfo`)."""
    table: dict[str, str] = {}
    for name, value in info.to_dict().items():
        if name in _OTHERS or isinstance(value, list) or value is None:
            continue
        if isinstance(value, Mapping):
            if set(_WINDOWS) <= value.keys():
                table[name] = _rates(value)
            continue
        table[name] = str(value)
    table["getTransferedTps"] = table.get("getTransferredTps", "")  # the name before 5.0, which mqadmin 4.9.7 reads
    ranges = info.put_message_distribute_time or {}
    table["putMessageDistributeTime"] = " ".join(f"{name}:{count}" for name, count in ranges.items())
    table["remainHowManyDataToFlush"] = _readable(info.remain_how_many_data_to_flush or 0)
    table["earliestMessageTimeStamp"] = str(info.earliest_message_time_stamp or -1)
    total = info.disk_free_bytes / max(1 - info.commit_log_disk_ratio, 0.01)
    table["commitLogDirCapacity"] = f"Total : {_readable(int(total))}, Free : {_readable(info.disk_free_bytes)}."
    return table


def _at_midnight(totals: BrokerStats) -> dict[str, str]:
    """Totals of messages at the last two midnights (`BrokerStats`)."""
    mornings = {"YesterdayMorning": totals.yesterday_morning, "TodayMorning": totals.today_morning}
    kinds = ("msgPutTotal", "msgGetTotal")
    return {kind + when: str(total) for when, both in mornings.items() for kind, total in zip(kinds, both, strict=True)}


def _rates(rates: Mapping[str, float | None]) -> str:
    """Rates over 10, 60 and 600 seconds in one text; 0.0 if the store is younger."""
    return " ".join(str(rates[window] or 0.0) for window in _WINDOWS)


def _readable(size: int) -> str:
    """Bytes as RocketMQ tells them: `512 B`, `1.5 KiB` (`MixAll.humanReadableByteCount`)."""
    if size < 1024:
        return f"{size} B"
    value, unit = size / 1024, 0
    while value >= 1024 and unit < 5:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {'KMGTPE'[unit]}iB"
