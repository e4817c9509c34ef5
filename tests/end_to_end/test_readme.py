"""Examples of the README and the docs work as they stand, in their order."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reput import Broker
from tests.support.commands import run_reput

README = Path(__file__).parents[2] / "README.md"
TOUR = README.parent / "docs/tour.md"


def blocks(language: str, page: Path = TOUR) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [text for found, text in fenced if found == language]


#: Once without what takes Spark, and once all.
with_spark = pytest.mark.parametrize("with_spark", [False, pytest.param(True, marks=pytest.mark.spark)])


@with_spark
def test_the_examples_run_one_after_the_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], with_spark: bool
) -> None:
    programs = blocks("python")
    assert ["spark" in program for program in programs] == [False, False, False, True]
    for program in programs if with_spark else programs[:3]:
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=600)
    printed = capfd.readouterr().out
    assert "PutMessageStatus.PUT_OK" in printed
    assert "('orders', 'paid', 1)" in printed  # DuckDB
    assert ("|orders|shipped|7|" in printed.replace(" ", "")) == with_spark


@with_spark
def test_the_commands_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_spark: bool
) -> None:
    """Without Spark in this process, which takes a quarter of the time; else each in a process of its own."""
    (shell,) = [block for block in blocks("") if block.startswith("reput ")]
    lines = [line for line in shell.splitlines() if with_spark or not line.startswith("reput dispatch ")]
    assert len(lines) == 17 + with_spark
    monkeypatch.chdir(tmp_path)
    for line in lines:
        if with_spark:
            done = subprocess.run(
                [sys.executable, "-m", *shlex.split(line)], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{line}: {done.stderr}"
        else:
            answer = run_reput(*shlex.split(line)[1:])
            assert answer.status == 0, f"{line}: {answer.err}"
    assert Path("build/tour-rebuilt/consumequeue/orders/0").is_dir()


@pytest.mark.java
def test_the_java_program_runs_as_it_stands_and_prints_what_the_tour_says(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", blocks("python")[0]], cwd=tmp_path, check=True)
    (program,) = blocks("java")
    assert program == (README.parent / "examples/broker/src/main/java/Orders.java").read_text()
    (command,) = [block for block in blocks("") if block.startswith("mvn ")]
    (output,) = [block for block in blocks("") if block.startswith("sent: ")]
    shutil.copytree(README.parent / "examples/broker", tmp_path / "examples/broker")
    with Broker.start(tmp_path / "build/tour", bind_address="127.0.0.1", brokerIP1="127.0.0.1") as broker:
        words = shlex.split(command.replace("127.0.0.1:9876", broker.namesrv))
        words.append(f"-Drocketmq.log.root={tmp_path}")
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    printed = done.stdout.removesuffix("\x1b[0m")  # Maven's last word
    assert done.returncode == 0, printed + done.stderr
    assert printed.splitlines()[0] == output.splitlines()[0]
    assert sorted(printed.splitlines()) == sorted(output.splitlines())


def test_the_program_of_the_page_on_asyncio_runs(tmp_path: Path) -> None:
    (program,) = blocks("python", README.parent / "docs/asyncio.md")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["PutMessageStatus.PUT_OK", "0", "1000", "32"]


def test_the_program_of_the_page_on_the_broker_runs(tmp_path: Path) -> None:
    (program,) = blocks("python", README.parent / "docs/broker.md")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == 2


def test_the_programs_of_the_page_on_tails_run(tmp_path: Path) -> None:
    first, second = blocks("python", README.parent / "docs/tail.md")
    printed = [
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for program in (first, second)
    ]
    assert printed == ["0 0 b'0'\n0 1 b'1'\n0 2 b'2'\n", "b'0'\nb'1'\nb'2'\n"]


def test_the_programs_of_the_site_s_first_page_run(tmp_path: Path) -> None:
    programs = blocks("python", README.parent / "docs/index.md")
    printed = [
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for program in programs
    ]
    assert printed == [
        "1000 ['topic', 'tags', 'keys', 'body']\n",
        "b'{\"total\": 12}'\n0 paid\n",
        "SEND_OK\n[b'one']\n",
    ]


def test_the_readme_s_ten_lines_run_and_then_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = blocks("python", README)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    first, *tailed, rows = done.stdout.splitlines()
    assert (first, tailed[8], rows) == ("b'{\"total\": 7}'", "8 paid ('o-8',)", "9")
    (shell,) = [block for block in blocks("", README) if block.startswith("reput ")]
    monkeypatch.chdir(tmp_path)
    query, audit, _ = shell.splitlines()
    assert "36" in run_reput(*shlex.split(query)[1:]).out
    assert run_reput(*shlex.split(audit)[1:]).status == 0


def test_the_readme_is_short() -> None:
    assert len(README.read_text().split()) <= 600
