"""The options of `Broker.start`: keys in snake_case, as `BrokerConfig` and `MessageStoreConfig` explain them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from reput.config.message_store_options import MessageStoreOptions

if TYPE_CHECKING:
    from reput.config.broker import BrokerRole, MetricsExporterType
    from reput.config.tls import ClientAuth, TlsMode
    from reput.formats.consumers import MessageRequestMode


class BrokerOptions(MessageStoreOptions, total=False):
    """Keys and the types of their values, with the keys of `MessageStoreOptions`."""

    tls_server_mode: TlsMode | Literal["disabled", "permissive", "enforcing"]
    tls_server_cert_path: str | None
    tls_server_key_path: str | None
    tls_server_key_password: str | None
    tls_server_need_client_auth: ClientAuth | Literal["none", "optional", "require"]
    tls_server_trust_cert_path: str | None
    tls_enable: bool
    tls_client_auth_server: bool
    tls_client_trust_cert_path: str | None
    tls_client_cert_path: str | None
    tls_client_key_path: str | None
    tls_client_key_password: str | None
    broker_cluster_name: str
    broker_name: str
    broker_id: int
    broker_permission: int
    region_id: str
    namesrv_addr: str | None
    bind_address: str
    grpc_server_port: int
    register_name_server_period: int
    register_broker_timeout_mills: int
    server_channel_max_idle_time_seconds: int
    broker_role: BrokerRole | Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
    ha_listen_port: int
    ha_slave_addresses: str | None
    ha_master_address: str | None
    slave_read_enable: bool
    in_sync_replicas: int
    enable_auto_in_sync_replicas: bool
    min_in_sync_replicas: int
    ha_max_gap_not_in_sync: int
    slave_timeout: int
    auto_create_topic_enable: bool
    default_topic_queue_nums: int
    auto_create_subscription_group: bool
    cluster_topic_enable: bool
    broker_topic_enable: bool
    trace_topic_enable: bool
    msg_trace_topic_name: str
    trace_on: bool
    notify_consumer_ids_changed_enable: bool
    channel_expired_timeout: int
    config_black_list: str
    start_accept_send_request_time_stamp: int
    store_reply_message_enable: bool
    reject_transaction_message: bool
    transaction_time_out: int
    transaction_check_max: int
    transaction_check_interval: int
    transaction_op_msg_max_size: int
    transaction_op_batch_interval: int
    send_thread_pool_queue_capacity: int
    reply_thread_pool_queue_capacity: int
    end_transaction_pool_queue_capacity: int
    query_thread_pool_queue_capacity: int
    admin_broker_thread_pool_queue_capacity: int
    broker_fast_failure_enable: bool
    wait_time_mills_in_admin_broker_queue: int
    long_polling_enable: bool
    short_polling_time_mills: int
    lite_pull_message_enable: bool
    default_query_max_num: int
    revive_queue_num: int
    revive_interval: int
    revive_max_slow: int
    revive_scan_time: int
    pop_polling_size: int
    max_pop_polling_size: int
    init_pop_offset_by_check_msg_in_mem: bool
    pop_from_retry_probability: int
    enable_retry_topic_v2: bool
    retrieve_message_from_pop_retry_topic_v1: bool
    pop_response_return_actual_retry_topic: bool
    server_load_balancer_enable: bool
    default_message_request_mode: MessageRequestMode | Literal["PULL", "POP"]
    default_pop_share_queue_num: int
    enable_property_filter: bool
    filter_data_clean_time_span: int
    max_error_rate_of_bloom_filter: int
    enable_calc_filter_bit_map: bool
    expect_consumer_num_use_filter: int
    flush_consumer_offset_interval: int
    consumer_offset_update_version_step: int
    use_server_side_reset_offset: bool
    recall_message_enable: bool
    allow_recall_when_broker_not_writeable: bool
    metrics_exporter_type: MetricsExporterType | Literal["DISABLE", "PROM"]
    metrics_prom_exporter_host: str | None
    metrics_prom_exporter_port: int
    metrics_label: str | None
    acl_enable: bool
    rocketmq_home: str | None
    authentication_enabled: bool
    authorization_enabled: bool
    authentication_metadata_provider: str | None
    init_authentication_user: str | None
    inner_client_authentication_credentials: str | None
    migrate_auth_from_v1_enabled: bool
    authentication_whitelist: str | None
    authorization_whitelist: str | None
    flush_delay_offset_interval: int
    delay_offset_update_version_step: int
