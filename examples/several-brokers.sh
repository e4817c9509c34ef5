#!/bin/sh
# A name server and two brokers as plain processes: docs/several-brokers.md.
#
#   sh examples/several-brokers.sh             starts all three; Ctrl-C ends them, and leaves nothing running
#   sh examples/several-brokers.sh broker-b    starts one of them, as to bring it back
#
# Each prints a line `ready ...` when it serves. Set to change them: STORES, HOST, NAMESRV_PORT, BROKER_A_PORT, BROKER_B_PORT.

stores=${STORES:-build/several-brokers}
host=${HOST:-127.0.0.1}
namesrv_port=${NAMESRV_PORT:-9876}

broker() {  # its name, its port
    exec reput broker "$stores/$1" --port "$2" --namesrv "$host:$namesrv_port" \
        --set "brokerName=$1" --set "brokerIP1=$host"
}

run() {
    case $1 in
        namesrv) exec reput namesrv --port "$namesrv_port" --set "bindAddress=$host" \
            --set "kvConfigPath=$stores/kvConfig.json" ;;
        broker-a) broker broker-a "${BROKER_A_PORT:-10911}" ;;
        broker-b) broker broker-b "${BROKER_B_PORT:-10921}" ;;
        *) echo "$1: there are namesrv, broker-a and broker-b" >&2; exit 2 ;;
    esac
}

mkdir -p "$stores"
if [ $# -gt 0 ]; then
    run "$1"
fi

pids=
trap 'kill $pids 2>/dev/null; wait; exit 0' INT TERM HUP
for name in namesrv broker-a broker-b; do
    (run "$name") &
    pids="$pids $!"
done
wait
