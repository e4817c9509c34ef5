"""The examples of docs/spark-wire.md, as they are, but for addresses and paths."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reput.testing import broker

PAGE = Path(__file__).parents[2] / "docs/spark-wire.md"
#: What comes before, between and after the examples.
PARTS = (
    """
from reput.client import Message
from reput.client.sync import Producer

with Producer("127.0.0.1:9876", group="shop") as producer:
    for topic in ("orders", "refunds"):
        producer.send(Message(topic, b"one"))
""",
    """
from pyspark.sql.functions import lit

assert orders.count() == 1
frame = orders.select(lit("copies").alias("topic"), "body")
""",
    """
def count(topic):
    return spark.read.format("reput").options(**at).option("subscribe", topic).load().count()


assert count("copies") == 1
rows, stream = orders, live
""",
    """
(query,) = spark.streams.active
query.processAllAvailable()
query.stop()
assert count("archive") == 2
spark.stop()
print("done")
""",
)


@pytest.mark.spark
def test_the_examples_of_spark_at_brokers_run(tmp_path: Path) -> None:
    examples = [block.partition("```")[0] for block in PAGE.read_text().split("```python\n")[1:]]
    assert len(examples) == len(PARTS) - 1
    with broker(str(tmp_path / "store")) as rocketmq:
        program = "".join(part + example for part, example in zip(PARTS, [*examples, ""], strict=True))
        program = program.replace("127.0.0.1:9876", rocketmq.namesrv).replace("/data/checkpoint", f"{tmp_path}/stream")
        path = tmp_path / "example.py"
        path.write_text(program)
        done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == "done\n", done.stderr
