"""Keys of RocketMQ 4.9.7 to 5.5.1 that reput does not use, with their types, and why they have no effect.

From `BrokerConfig`, `BrokerIdentity`, `MessageStoreConfig` (of the store and of the tiered store), `NettyServerConfig`,
`NettyClientConfig`, `TlsSystemConfig`, `AuthConfig` and `NamesrvConfig`: what a broker.conf may set, and what
`mqadmin getBrokerConfig` shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple


class UnusedKey(NamedTuple):
    """A key of RocketMQ's that has no effect.

    Attributes:
        name: RocketMQ's.
        type: The Java type of its values; empty for a key of another server, which checks them.
        reason: Why it has no effect; or why only one value is taken.
        since: The first version that has it, if that is later than 5.3.3.
        only: The one value, beside an empty text, with which a store or broker starts; None if all are the same here.
    """

    name: str
    type: str
    reason: str
    since: str = ""
    only: str | None = None

    @property
    def effect(self) -> str:
        """Effect of the key here, in words."""
        if self.only is None:
            return f"no effect here: {self.reason}"
        return f"only {self.only or 'an empty value'} is taken: {self.reason}"

    def refusal(self, value: object) -> str | None:
        """Reason why nothing starts with a value; None if something does."""
        text = str(value).strip().lower()
        if self.only is None or text in ("", self.only.lower()):  # RocketMQ takes an empty text for its default
            return None
        return f"{self.name}={value}: {self.reason}; leave {self.name} out"


#: The reason of keys that the store has from others.
OF_BROKER = "a key of the broker"
OF_NAMESRV = "a key of the name server"

#: Reasons, and the keys of each, by type. `@5.5.0` follows a name that no version up to 5.3.3 has; `=VALUE` one with
#: which nothing starts but by this value, because what RocketMQ does by others cannot be done here, and not to say so
#: would lose messages, or a promise.
_TABLE: tuple[tuple[str, str], ...] = (
    # keys of other servers
    (OF_BROKER, """
        any: aclEnable adminBrokerThreadPoolQueueCapacity allowRecallWhenBrokerNotWriteable
        authenticationEnabled authenticationMetadataProvider authenticationWhitelist authorizationEnabled
        authorizationWhitelist autoCreateSubscriptionGroup autoCreateTopicEnable bindAddress brokerClusterName
        brokerFastFailureEnable brokerId brokerName brokerPermission brokerRole brokerTopicEnable
        channelExpiredTimeout clusterTopicEnable configBlackList consumerOffsetUpdateVersionStep
        defaultMessageRequestMode defaultPopShareQueueNum defaultQueryMaxNum defaultTopicQueueNums
        delayOffsetUpdateVersionStep enableAutoInSyncReplicas enableCalcFilterBitMap enablePropertyFilter
        enableRetryTopicV2 endTransactionPoolQueueCapacity expectConsumerNumUseFilter filterDataCleanTimeSpan
        flushConsumerOffsetInterval flushDelayOffsetInterval haListenPort haMasterAddress haMaxGapNotInSync
        inSyncReplicas initAuthenticationUser initPopOffsetByCheckMsgInMem innerClientAuthenticationCredentials
        litePullMessageEnable longPollingEnable maxErrorRateOfBloomFilter maxPopPollingSize metricsExporterType
        metricsLabel metricsPromExporterHost metricsPromExporterPort migrateAuthFromV1Enabled minInSyncReplicas
        msgTraceTopicName namesrvAddr notifyConsumerIdsChangedEnable popFromRetryProbability popPollingSize
        popResponseReturnActualRetryTopic queryThreadPoolQueueCapacity recallMessageEnable regionId
        registerBrokerTimeoutMills registerNameServerPeriod rejectTransactionMessage replyThreadPoolQueueCapacity
        retrieveMessageFromPopRetryTopicV1 reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime rocketmqHome
        sendThreadPoolQueueCapacity serverChannelMaxIdleTimeSeconds serverLoadBalancerEnable shortPollingTimeMills
        slaveReadEnable slaveTimeout startAcceptSendRequestTimeStamp storeReplyMessageEnable tls.client.authServer
        tls.client.certPath tls.client.keyPassword tls.client.keyPath tls.client.trustCertPath tls.enable
        tls.server.certPath tls.server.keyPassword tls.server.keyPath tls.server.mode tls.server.need.client.auth
        tls.server.trustCertPath traceOn traceTopicEnable transactionCheckInterval transactionCheckMax
        transactionOpBatchInterval transactionOpMsgMaxSize transactionTimeOut useServerSideResetOffset
        waitTimeMillsInAdminBrokerQueue
    """),
    (OF_NAMESRV, """
        any: configStorePath deleteTopicWithBrokerRegistration enableAllTopicList enableTopicList kvConfigPath
        needWaitForService notifyMinBrokerIdChanged orderMessageEnable returnOrderTopicConfigToBroker
        scanNotActiveBrokerInterval supportActingMaster waitSecondsForService
        boolean: clusterTest
        String: productEnvName
    """),
    # threads and network
    ("requests are answered in one event loop and a few threads, whose numbers are fixed", """
        int: ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums
        clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums clientRequestThreadPoolNums
        clientRequestThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity consumerManageThreadPoolNums
        defaultThreadPoolNums defaultThreadPoolQueueCapacity endTransactionThreadPoolNums heartbeatThreadPoolNums
        heartbeatThreadPoolQueueCapacity litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
        loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity processReplyMessageThreadPoolNums
        pullMessageThreadPoolNums pullThreadPoolQueueCapacity putMessageFutureThreadPoolNums
        putThreadPoolQueueCapacity queryMessageThreadPoolNums sendMessageThreadPoolNums
        unRegisterBrokerQueueCapacity
        boolean: asyncSendEnable enableFastChannelEventProcess highSpeedMode
    """),
    ("such requests wait in no queue that has a limit of time", """
        long: waitTimeMillsInAckQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
        waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue
    """),
    ("connections are asyncio's, not Netty's", """
        int: clientAsyncSemaphoreValue clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds
        clientOnewaySemaphoreValue clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads
        connectTimeoutMillis serverAsyncSemaphoreValue serverCallbackExecutorThreads serverOnewaySemaphoreValue
        serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
        serverWorkerThreads shutdownWaitTimeSeconds writeBufferHighWaterMark writeBufferLowWaterMark
        long: channelNotActiveInterval maxReconnectIntervalTimeSeconds
        boolean: clientCloseSocketIfTimeout clientPooledByteBufAllocatorEnable disableCallbackExecutor
        disableNettyWorkerGroup enableNetWorkFlowControl enableReconnectForGoAway enableShutdownGracefully
        isScanAvailableNameSrv scanAvailableNameSrv serverNettyWorkerGroupEnable
        serverPooledByteBufAllocatorEnable transferMsgByHeap useEpollNativeSelector
        String: socksProxyConfig
    """),
    ("tls.enable says it", "boolean: useTLS"),
    ("keys of TLS stand beside the other keys", "String: tls.config.file"),
    ("a server without a certificate talks no TLS", "String: tls.test.mode.enable"),
    ("a certificate that a client is asked for is always checked", "String: tls.server.authClient"),
    ("TLS is 1.2 or later, with the ciphers of this machine's OpenSSL", """
        String: tls.ciphers@5.4.0= tls.protocols@5.4.0=
    """),
    # name servers
    ("namesrvAddr names the name servers, as addresses or host names, and nobody else is asked for them", """
        boolean: fetchNamesrvAddrByAddressServer fetchNameSrvAddrByDnsLookup
        long: fetchNamesrvAddrInterval
        int: updateNameServerAddrPeriod
        long: loadBalancePollNameServerInterval
    """),
    ("a registration names all topics, and is what tells a name server that the broker is there", """
        boolean: compatibleWithOldNameSrv compressedRegister enableSplitRegistration forceRegister
        int: brokerHeartbeatInterval sendHeartbeatTimeoutMillis splitRegistrationSize
        long: brokerNotActiveTimeoutMillis
    """),
    ("a topic that is made or changed is registered by itself, at name servers that take it", """
        boolean: enableSingleTopicRegister
    """),
    ("the broker has one address, brokerIP1, for clients and slaves", "String: brokerIP2"),
    # replication
    ("a broker takes no part in controller mode, in which controllers choose masters", """
        boolean: allAckInSyncStateSet asyncLearner enableControllerInNamesrv enableControllerMode=false
        fetchControllerAddrByDnsLookup syncFromLastFile syncMasterFlushOffsetWhenStartup
        int: brokerElectionPriority
        long: checkSyncStateSetPeriod controllerHeartBeatTimeoutMills haMaxTimeSlaveNotCatchup
        syncControllerMetadataPeriod
        String: controllerAddr storePathBrokerIdentity storePathEpochFile
    """),
    ("a DLedger log has a format of its own, and brokers that choose their master: neither is here", """
        boolean: enableBatchPush enableDLegerCommitLog=false isEnableBatchPush
        String: dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId storePathDLedgerCommitLog
    """),
    ("no slave acts for a master that is away", """
        boolean: enableRemoteEscape enableSlaveActingMaster lockInStrictMode skipPreOnline
        int: syncBrokerMemberGroupPeriod
        long: forwardTimeout maxChecksumRange
    """),
    ("there are no containers of brokers", "boolean: inBrokerContainer isBrokerContainer isInBrokerContainer"),
    ("inSyncReplicas and minInSyncReplicas say how many copies there are", "int: totalReplicas"),
    ("haMaxGapNotInSync says it", "int: haSlaveFallbehindMax"),
    ("replication has intervals and sizes of its own", """
        boolean: duplicationEnable haFlowControlEnable offsetCheckInSlave
        int: haHousekeepingInterval haSendHeartbeatInterval haTransferBatchSize
        long: maxHaTransferByteInSecond maxSlaveResendLength syncBrokerMetadataPeriod
    """),
    # queues, metadata and index in RocksDB
    ("queues are in files, in no RocksDB; `reput rebuild` makes them from the log", """
        String: storeType=default
    """),
    ("queues are in files, in no RocksDB", """
        boolean: combineCQEnableCheckSelf@5.4.0 combineCQUseRocksdbForLmq@5.5.0 enableAcceleratedRecovery@5.4.0
        enableRocksDBLog iteratorWhenUseRocksdbConsumeQueue@5.5.0 rocksdbCQDoubleWriteEnable
        rocksdbCQSelectiveDoubleWriteEnable@5.5.1 useSeparateStorePathForRocksdbCQ@5.5.0
        int: combineCQMaxExtraSearchCommitLogFiles@5.4.0 rocksdbFlushWalFrequency
        rocksdbMaxSizeAmplificationPercent@5.5.1
        long: cleanRocksDBDirtyCQIntervalMin memTableFlushIntervalMs rocksdbWalFileRollingThreshold
        statRocksDBCQIntervalSec
        String: bottomMostCompressionTypeForConsumeQueueStore combineAssignOffsetCQType@5.4.0
        combineCQLoadingCQTypes@5.4.0 combineCQPreferCQType@5.4.0 rocksdbCompressionType
    """),
    ("topics, groups and offsets are in JSON files below config, in no RocksDB", """
        boolean: persistConsumerOffsetIncrementally@5.5.0 realTimePersistRocksDBConfig
        useSingleRocksDBForAllConfigs@5.4.0
        String: configManagerVersion=v1
    """),
    ("keys are indexed in index files, in no RocksDB", """
        boolean: indexRocksDBEnable@5.4.0
        int: maxRocksDBIndexQueryDays@5.4.0
    """),
    ("index files are written, unless messageIndexEnable=false", "boolean: indexFileWriteEnable@5.4.0=true"),
    ("queries by key read index files, where all keys are", "boolean: indexFileReadEnable@5.4.0"),
    ("a recovery compares the index with the log", "boolean: messageIndexSafe"),
    ("queues and index are written together, so the index is not behind", "int: putMsgIndexHightWater"),
    # the log
    ("messages go into the mapped log at once", """
        boolean: fastFailIfNoBufferInStorePool readUnCommitted transientStorePoolEnable wakeCommitWhenPutMessage
        int: commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
        transientStorePoolSize
    """),
    ("a sync begins when a put waits for it, or after flushIntervalCommitLog; syncFlushTimeout limits the wait", """
        boolean: flushCommitLogTimed wakeFlushWhenPutMessage
        int: maxAsyncPutMessageRequests putMessageTimeout
    """),
    ("log and queues are written through memory maps, and the bytes are the same", """
        boolean: putConsumeQueueDataByFileChannel writeWithoutMmap@5.4.0
        int: sharedByteBufferNum@5.4.0
    """),
    ("appends have one lock", """
        boolean: debugLockEnable useABSLock useReentrantLockWhenPutMessage
        int: spinLockCollisionRetreatOptimalDegree topicQueueLockNum
    """),
    ("a sync that fails stops the store, whatever a key says", "boolean: enableRunningFlagsInFlush@5.4.0"),
    ("a topic has 127 bytes, unless autoMessageVersionOnTopicLen lets it be longer", "int: maxTopicLength"),
    ("mapped files are not swapped: the system takes their memory back when it needs it", """
        boolean: mappedFileSwapEnable
        int: commitLogSwapMapReserveFileNum logicQueueSwapMapReserveFileNum
        long: cleanSwapedMapInterval commitLogForceSwapMapInterval commitLogSwapMapInterval
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval
    """),
    # dispatch and recovery
    ("dispatch has a way of its own, which hands batches of records to kernels", """
        boolean: dispatchFromSenderThread enableAsyncReput enableBuildConsumeQueueConcurrently
        recheckReputOffsetFromCq
        int: batchDispatchRequestThreadPoolNums dispatchCqCacheNum dispatchCqThreads
    """),
    ("a start reads as much of the log as is not in queues and index", """
        boolean: enableLogConsumeQueueRepeatedlyBuildWhenRecover@5.4.0 recoverConcurrently
        int: commitLogRecoverMaxNum@5.4.0 maxCheckMessageReuseBufferSize@5.5.1 maxRecoveryCommitlogFiles
        recoverThreadPoolNums
    """),
    ("a recovery always checks that a record lies where it says", "boolean: checkCommitLogOffsetOnRecover@5.5.0"),
    ("the bit maps' length comes from expectConsumerNumUseFilter", "int: bitMapLengthConsumeQueueExt"),
    ("light message queues are not limited in number", """
        boolean: enableLmqQuota@5.5.0
        int: maxLmqConsumeQueueNum
    """),
    # retention and reading
    ("retention waits for no reader, and goes by the limits of whole disks", """
        double: logicalDiskSpaceCleanForciblyThreshold
        int: destroyMapedFileIntervalForcibly disappearTimeAfterStart maxBatchDeleteFilesNum
        redeleteHangedFileInterval replicasPerDiskPartition
    """),
    ("the smallest offsets of queues are moved with the files that go", """
        boolean: correctMinOffsetMadviseEnable@5.5.1
        int: correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval
    """),
    ("topics are not compacted", """
        boolean: enableCompaction
        int: compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal compactionThreadNum
        maxOffsetMapSize
    """),
    ("no plug-in of Java is loaded, and what a tiered store alone has is not read", "String: messageStorePlugIn="),
    ("there is no tiered store", """
        boolean: readAheadCacheEnable recordGetMessageResult tieredStoreCrcCheckEnable
        tieredStoreDeleteFileEnable tieredStoreGroupCommit
        int: commitLogRollingInterval commitLogRollingMinimumSize readAheadMessageCountThreshold
        readAheadMessageSizeThreshold tieredStoreFileReservedTime tieredStoreGroupCommitCount
        tieredStoreGroupCommitSize tieredStoreGroupCommitTimeout tieredStoreIndexFileMaxHashSlotNum
        tieredStoreIndexFileMaxIndexNum tieredStoreMaxGroupCommitCount tieredStoreMaxPendingLimit
        long: readAheadCacheAfterReadExpireDuration@5.5.1 readAheadCacheCreateExpireDuration@5.5.1
        readAheadCacheExpireDuration tieredStoreCommitLogMaxSize tieredStoreConsumeQueueMaxSize
        tieredStoreDeleteFileInterval tieredStoreDispatchMinFreeMemoryMaxBytes@5.5.1
        double: readAheadCacheSizeThresholdRate tieredStoreDispatchMinFreeMemoryRatio@5.5.1
        String: objectStoreAccessKey objectStoreBucket objectStoreEndpoint objectStoreSecretKey
        tieredBackendServiceProvider tieredMetadataServiceProvider tieredStoreFilePath
        TieredStorageLevel: tieredStorageLevel
    """),
    ("reads of old messages are not limited by group", """
        boolean: coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable usePIDColdCtrStrategy
        int: accessMessageInMemoryHotRatio timerColdDataCheckIntervalMs
        long: cgColdReadThreshold globalColdReadThreshold
    """),
    ("maxFilterMessageSize and the limits of bytes and messages say how far a pull reads", """
        boolean: searchBcqByCacheEnable
        int: pullBatchMaxMessageCount travelCqFileNumWhenGetMessage
    """),
    ("a lag is counted from units of queues", """
        boolean: enableNotifyBeforePopCalculateLag estimateAccumulation useStaticSubscription
        int: maxConsumeQueueScan sampleCountThreshold sampleSteps
        long: subscriptionExpiredTimeout
    """),
    # topics, groups and consumers
    ("a request for all topics or groups gets all of them in one answer", """
        boolean: enableSplitMetadata@5.4.0
        int: splitMetadataSize@5.4.0
    """),
    ("a request deletes one topic or group", """
        boolean: clearRetryTopicWhenDeleteTopic
        double: batchDeleteSubscriptionGroupMaxRate@5.5.1 batchDeleteTopicMaxRate@5.5.1
    """),
    ("topics, groups and clients have the rules of RocketMQ's defaults", """
        boolean: enableCleanExpiredOffset enableCreateSysGroup
        enableMixedMessageType enableRegisterProducer filterSupportRetry realTimeNotifyConsumerChange
        rejectPullConsumerEnable validateSystemTopicWhenUpdateTopic
        int: cleanOfflineBrokerInterval maxDelayTime
    """),
    ("no consumer is stopped because it is behind", """
        boolean: disableConsumeIfConsumerReadSlowly
        long: consumerFallbehindThreshold
    """),
    ("a proxy's offsets of broadcasting consumers are not kept", """
        boolean: enableBroadcastOffsetStore
        long: broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond
    """),
    ("consumerOffset.json is written by flushConsumerOffsetInterval alone", "int: flushConsumerOffsetHistoryInterval"),
    ("changes are kept in the file of --config, or in config/broker.properties", "String: brokerConfigPath"),
    ("there are no filter servers", "int: filterServerNums=0"),
    # POP
    ("check points of POP are messages, in no RocksDB: what was popped there and not acked would not come again", """
        boolean: popConsumerKVServiceEnable=false
    """),
    ("check points of POP are messages, in no RocksDB", """
        boolean: popConsumerFSServiceInit popConsumerKVServiceInit popConsumerKVServiceLog
        popReviveSkipIfGroupAbsent@5.5.0
        int: popReviveConcurrency@5.4.0
        long: popRocksdbBlockCacheSize@5.5.1 popRocksdbWriteBufferSize@5.5.1
    """),
    ("check points and acks of POP go into the revive topic at once", """
        boolean: appendAckAsync appendCkAsync enablePopBatchAck enablePopBufferMerge enableSkipLongAwaitingAck
        skipWhenCKRePutReachMaxTimes
        int: popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut
        popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
        long: reviveAckWaitMs
    """),
    ("pops that wait are woken when a message comes, a lock is free or their time is over", """
        boolean: enableNotifyAfterPopOrderLockRelease useMessageFilterForNotification@5.5.0
        int: maxMessageFilterNumForNotification@5.5.0 popOrderLockTimerTicksPerWheel@5.5.1 popPollingMapSize
        popPollingMapExpireTimeSeconds@5.4.0
        long: popLongPollingForceNotifyInterval popOrderLockTimerTickMs@5.5.1
    """),
    ("messages that are popped and not acked are not limited in number", """
        boolean: enablePopMessageThreshold
        long: popInflightMessageThreshold
    """),
    ("a retry topic that POP makes has one queue", "boolean: useSeparateRetryQueue@5.4.0"),
    ("queues of a topic have no priorities", """
        boolean: priorityOrderAsc@5.4.0
        int: popFromRetryProbabilityForPriority@5.4.0
    """),
    ("there are no lite topics", """
        boolean: enableLiteEventMode@5.5.0 enableLitePopLog@5.5.0 liteLagCountMetricsEnable@5.5.0
        liteLagLatencyCollectEnable@5.5.0 liteLagLatencyMetricsEnable@5.5.0
        int: liteLagLatencyTopK@5.5.0 maxClientEventCount@5.5.0
        long: liteEventCapacityCacheTtlMs@5.5.1 liteEventCheckInterval@5.5.0
        liteEventFullDispatchDelayTime@5.5.0 liteEventFullDispatchDelayTimeForWildcardGroup@5.5.0
        liteSubscriptionCheckInterval@5.5.0 liteSubscriptionCheckTimeoutMills@5.5.0 liteTtlCheckInterval@5.5.0
        maxLiteSubscriptionCount@5.5.0 minLiteTTl@5.5.0
    """),
    # messages with a time, and transactions
    ("messages with a time wait in timer wheel and timer log, and those of RocketMQ's RocksDB would not come", """
        boolean: timerRocksDBEnable@5.4.0=false
    """),
    ("messages with a time wait in timer wheel and timer log, in no RocksDB", """
        boolean: timerRecallToTimelineEnable@5.4.0 timerRecallToTimeWheelEnable@5.4.0 timerRocksDBStopScan@5.4.0
        int: timerReputServiceCorePoolSize@5.5.0 timerReputServiceMaxPoolSize@5.5.0
        timerReputServiceQueueCapacity@5.5.0 timerRocksDBRollIntervalHours@5.4.0 timerRocksDBRollRangeHours@5.4.0
        long: timerRocksDBPrecisionMs@5.4.0
        double: timerRocksDBRollMaxTps@5.4.0 timerRocksDBTimeExpiredMaxTps@5.4.0
    """),
    ("the timer wheel is one file, and snapshots of it are not read: messages in them would not come", """
        boolean: timerWheelSnapshotFlush@5.4.0=false
    """),
    ("the timer wheel is one file, without snapshots", "int: timerWheelSnapshotIntervalMs@5.4.0"),
    ("a recall names its message by topic and unique key, as with true, and one by the unique key alone is taken", """
        boolean: appendTopicForTimerDeleteKey@5.4.0
    """),
    ("timers run in the event loop, from the start of the broker to its end", """
        boolean: timerEnableCheckMetrics timerEnableDisruptor timerEnableRetryUntilSuccess timerSkipUnknownError
        timerStopDequeue timerStopEnqueue timerWarmEnable
        int: timerGetMessageThreadNum timerMetricSmallThreshold timerProgressLogIntervalMs
        timerPutMessageThreadNum
        String: timerCheckMetricsWhen
    """),
    ("messages with a delay level wait in the topic of delay levels", """
        boolean: enableScheduleAsyncDeliver enableScheduleMessageStats timerInterceptDelayLevel
        int: scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    """),
    ("transactions are checked from RMQ_SYS_TRANS_HALF_TOPIC alone; others that RocketMQ wrote would stay open", """
        boolean: transWriteOriginTransHalfEnable@5.4.0=true
    """),
    ("transactions are checked from their topic, in no RocksDB", """
        boolean: transRocksDBEnable@5.4.0
        int: transactionCheckRocksdbCoreThreads@5.5.0 transactionCheckRocksdbMaxThreads@5.5.0
        transactionCheckRocksdbQueueCapacity@5.5.0
    """),
    ("the counts of open transactions are written every 3 s", "long: transactionMetricFlushInterval"),
    # access
    ("users and policies are in a file of reput's, and all of them in memory", """
        String: authConfigPath authenticationProvider authenticationStrategy authorizationMetadataProvider
        authorizationProvider authorizationStrategy clusterName configName
        int: aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond statefulAuthenticationCacheExpiredSecond
        statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond
        statefulAuthorizationCacheMaxNum userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
    """),
    # monitoring
    ("metrics are at /metrics for Prometheus, which asks for them", """
        boolean: metricsExportBatchSplitEnabled@5.5.1 metricsInDelta
        int: metricsExportBatchMaxConcurrent@5.5.1 metricsExportBatchMaxDataPoints@5.5.0
        metricsOtelCardinalityLimit
        long: metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
        metricLoggingExporterIntervalInMills
        String: metricsExportOtelMemoryMode@5.5.1 metricsGrpcExporterHeader metricsGrpcExporterTarget
    """),
    ("metricsExporterType turns on all metrics, or none", """
        boolean: enableConnectionMetrics@5.4.0 enableLagAndDlqMetrics@5.4.0 enableMessageStoreMetrics@5.4.0
        enablePopMetrics@5.4.0 enableRemotingMetrics@5.4.0 enableRequestMetrics@5.4.0 enableStatsMetrics@5.4.0
        enableTransactionMetrics@5.4.0
    """),
    ("statistics and logs have rules of their own", """
        boolean: accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats commercialEnable
        diskFallRecorded enableDetailStat enableLmqStats enablePopLog isolateLogEnable printChannelGroups
        int: commercialBaseCount commercialBigCount commercialSizePerMsg commercialTimerCount
        commercialTransCount maxStatsIdleTimeInMinutes printChannelGroupsMinNum
    """),
)  # fmt: skip

_WORD = re.compile(r"([\w.]+)(?:@([0-9.]+))?(=\w*)?(:)?")


def _unused_keys() -> Iterator[UnusedKey]:
    for reason, words in _TABLE:
        kind = ""
        for name, since, only, is_type in _WORD.findall(words):
            if is_type:
                kind = "" if name == "any" else name
            else:
                yield UnusedKey(name, kind, reason, since, only[1:] if only else None)


#: The keys by RocketMQ's names.
ROCKETMQ_KEYS: Mapping[str, UnusedKey] = MappingProxyType({key.name: key for key in _unused_keys()})


def unused_keys() -> list[UnusedKey]:
    """The keys that neither a broker nor its store uses, in the order of their names."""
    return sorted((key for key in ROCKETMQ_KEYS.values() if key.reason != OF_BROKER), key=lambda key: key.name.lower())
