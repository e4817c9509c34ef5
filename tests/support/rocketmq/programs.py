"""Builds what make test-rest starts of RocketMQ, its clients and Iceberg, so that no test waits for downloads."""

from __future__ import annotations

from tests.support.rocketmq.apache import EACH_STORE, build
from tests.support.rocketmq.clients import PROGRAMS, built
from tests.support.rocketmq.config_keys import build_keys


def main() -> None:
    for version in EACH_STORE:
        build(version)
    for program in PROGRAMS:
        built(program)
    build_keys()


if __name__ == "__main__":
    main()
