"""A broker on a disk that fills up: what it answered with SEND_OK is consumed on the full disk."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from lab.campaign.children import in_child
from reput.kernel_loader import load_kernels
from reput.remoting.codes import ResponseCode
from tests.support.async_tests import run
from tests.support.broker import messages_of, serving_broker, with_topic
from tests.support.small_tmpfs import mount_tmpfs

#: Small log files beside RocketMQ's index, whose slots are larger.
_SIZES = {
    "mapped_file_size_commit_log": 1 << 20, "max_hash_slot_num": 5_000_000, "max_index_num": 20_000_000,
    "disk_space_warning_level_ratio": 90, "flush_disk_type": "ASYNC_FLUSH",
}  # fmt: skip


def test_what_was_answered_is_pulled_and_found_by_key_on_the_full_disk(tmp_path: Path) -> None:
    load_kernels()

    async def fill_and_free() -> None:
        ballast = tmp_path / "ballast"
        ballast.write_bytes(bytes(28 << 20))
        async with serving_broker(tmp_path / "store", **_SIZES) as served:
            client = await served.client()
            await with_topic(client, "orders")
            answer = await client.send_message("orders")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "maxHashSlotNum" in str(answer.remark), "the index would not go on the disk"
            os.truncate(ballast, 8 << 20)
            sent = 0
            while True:
                answer = await client.send_message("orders", bytes(20_000), properties={"KEYS": f"k{sent}"})
                if answer.code:
                    break
                sent += 1
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "no space left" in str(answer.remark)
            assert sent > 50
            pulled = 0
            while (answer := await client.pull("orders", pulled)).code == 0:
                pulled += len(messages_of(answer))
            assert pulled == sent
            state = served.controller._state
            assert len(state.store.query_message("orders", f"k{sent - 1}")) == 1
            ballast.unlink()
            assert (await client.send_message("orders", bytes(20_000))).code == 0
            assert (await client.pull("orders", pulled)).code == 0

    def life() -> Counter[str]:
        mount_tmpfs(tmp_path, 40 << 20)
        run(fill_and_free())
        return Counter()

    in_child(life)
