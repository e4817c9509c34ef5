"""Exit statuses, errors in one line, and what the command costs to start: in processes of their own."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import reput
from reput.cli.main import Application
from tests.support.commands import GOLDEN, SMALL_FILES, Run
from tests.support.shares import sampled

HEAVY_MODULES = ("numba", "numpy", "pyarrow", "rich", "pyspark")


def start(*arguments: object, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "reput", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **{**pipes, **options})  # type: ignore[call-overload]


def test_a_message_goes_in_by_one_process_and_out_by_another(tmp_path: Path) -> None:
    putting = start("put", tmp_path / "s", "--topic", "t", "--stdin", "--json", *SMALL_FILES, stdin=subprocess.PIPE)
    assert putting.communicate("einß\nzwei\n")[1] == ""
    getting = start("get", tmp_path / "s", "--topic", "t", "--json")
    out, _ = getting.communicate()
    assert (putting.returncode, getting.returncode) == (0, 0)
    assert '"body": "einß"' in out.splitlines()[0]
    assert '"body": "zwei"' in out.splitlines()[1]


ENCODINGS = ({"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0"})


@sampled(3)
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize("command", ["stats", "top --interval=0", "dump"])
def test_what_an_encoding_does_not_have_is_a_question_mark(encoding: dict[str, str], command: str) -> None:
    name, *options = command.split()
    running = start(name, GOLDEN / "clean/store", *options, encoding="latin-1", env={**os.environ, **encoding})
    out, err = running.communicate()
    assert (running.returncode, err) == (0, "")
    assert "topic-??" in out
    assert out.isascii() or "PYTHONIOENCODING" in encoding


@sampled(2)
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_json_is_the_same_in_each_encoding(run_reput: Run, encoding: dict[str, str]) -> None:
    dumping = start("dump", GOLDEN / "clean/store", "--json", env={**os.environ, **encoding})
    out, err = dumping.communicate()
    assert (dumping.returncode, err) == (0, "")
    assert "\\u8ba2\\u5355" in out
    in_utf8 = run_reput("dump", GOLDEN / "clean/store", "--json")
    assert [json.loads(line) for line in out.splitlines()] == in_utf8.lines()


def test_names_of_topics_are_utf8_whatever_the_locale_says() -> None:
    auditing = start("audit", GOLDEN / "clean/store", env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"})
    auditing.communicate()
    assert auditing.returncode == 0


def test_an_error_shows_what_the_encoding_does_not_have_as_an_escape() -> None:
    asking = start("query", GOLDEN / "clean/store", "--topics", "topic-订", env={**os.environ, **ENCODINGS[0]})
    _, err = asking.communicate()
    assert asking.returncode == 0
    assert err == "reput: there is no topic 'topic-\\u8ba2'; did you mean 'topic-\\u8ba2\\u5355'?\n"


def test_a_progress_bar_has_only_what_the_encoding_has() -> None:
    controller, terminal = pty.openpty()
    counting = start("stats", GOLDEN / "clean/store", stderr=terminal, env={**os.environ, **ENCODINGS[0]})
    os.close(terminal)
    assert counting.communicate()[0]
    shown = os.read(controller, 1 << 16)
    os.close(controller)
    assert counting.returncode == 0
    assert b"100%" in shown
    assert shown.isascii()


def ended_with(arguments: list[str], expression: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which prints an expression to stderr when it has ended."""
    code = (
        f"import sys; sys.argv = {['reput', *arguments]}\n"
        "from reput.cli import main\n"
        "try:\n    main.main()\n"
        f"finally:\n    print({expression}, file=sys.stderr)\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_help_imports_nothing_heavy() -> None:
    done = ended_with(["--help"], f"[m for m in {HEAVY_MODULES} if m in sys.modules]")
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_of_a_command_that_is_named_alone_the_parameters_are_made() -> None:
    done = ended_with(["config", "--help"], "[command.name for command in main.app.registered_commands]")
    assert (done.returncode, done.stderr) == (0, "['config']\n")
    assert "Usage: " in done.stdout


def test_a_job_loads_what_it_needs_and_leaves_the_garbage_collector_as_it_was(store: Path) -> None:
    code = (
        f"import gc, sys; before = gc.get_threshold(); sys.argv = ['reput', 'stats', {str(store)!r}, '--json']\n"
        "from reput.cli.main import main\n"
        "try:\n    main()\n"
        "finally:\n"
        "    names = ('reput.kernels.records.record_scan', 'reput.kernels.records.record_encode', 'pandas')\n"
        "    print([name in sys.modules for name in names], gc.get_threshold() == before, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "[True, False, False] True\n")


@sampled(4)
@pytest.mark.parametrize(
    "arguments", [("info", "STORE"), ("stats", "STORE"), ("put", "NEW", "--topic", "t", "--body", "x"), ("warm",)]
)
def test_a_free_threaded_python_is_refused_in_one_line(store: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    paths = {"STORE": str(store), "NEW": str(tmp_path / "new")}
    code = (
        "import sysconfig, sys; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1\n"
        f"sys.argv = ['reput', *{[paths.get(text, text) for text in arguments]!r}]\n"
        "from reput.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("reput: free-threaded Python")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_an_interrupt_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    with start("put", tmp_path / "s", "--topic", "t", "--stdin", stdin=subprocess.PIPE) as putting:
        assert putting.stdin is not None
        putting.stdin.write("x" * (1 << 20))  # more than a pipe holds: the command is reading by now
        putting.send_signal(signal.SIGINT)
        out, err = putting.communicate()
    assert (putting.returncode, out, err) == (130, "", "reput: interrupted\n")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("module", ["typer", "reput.cli.commands.stats.stats"])
def test_an_interrupt_while_commands_are_imported_ends_with_one_line(module: str) -> None:
    code = (
        "import os, signal, sys\n"
        "from reput.__main__ import main\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = ['reput', '--version']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "reput: interrupted\n")


def test_a_reader_that_stops_early_ends_the_command_quietly(store: Path) -> None:
    for number in range(3):
        with reput.MessageStore.open(
            store, mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, max_hash_slot_num=100,
            max_index_num=400,
        ) as opened:  # fmt: skip
            opened.put_messages([reput.Message("t", b"x" * 100)] * 200, queue_id=number)
    for command in (("dump", store), ("dump", store, "--json")):
        with start(*command) as dumping:
            assert dumping.stdout is not None
            assert dumping.stderr is not None
            dumping.stdout.readline()
            dumping.stdout.close()
            err = dumping.stderr.read()
        assert (dumping.returncode, err) == (141, "")


@sampled(3)
@pytest.mark.parametrize("arguments", [("info", "STORE"), ("info", "STORE", "--json"), ("--help",)])
def test_output_that_cannot_be_written_is_an_error_in_one_line(store: Path, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "reput", *(str(store) if text == "STORE" else text for text in arguments)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "reput: cannot write the output: No space left on device\n")


@sampled(2)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_is_closed_and_errors_that_nobody_can_read_are_no_findings(
    store: Path, tmp_path: Path, unbuffered: str
) -> None:
    reput_info = f"PYTHONUNBUFFERED={unbuffered} {sys.executable} -m reput info"
    done = subprocess.run(f"{reput_info} {store} >&-", shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "reput: cannot write the output: it is closed\n")
    for nowhere in ("/dev/full", "&-"):
        done = subprocess.run(f"{reput_info} {tmp_path}/none 2>{nowhere}", shell=True, stdout=subprocess.PIPE)
        assert (done.returncode, done.stdout) == (2, b"")


BAD_STORES = {
    "nothing there": (lambda path: None, "no such directory"),
    "a file": (lambda path: path.write_text("x"), "a file, not a directory"),
    "no store": (lambda path: (path.mkdir(), (path / "photo.jpg").touch()), "no store"),
    "a foreign file in the log": (
        lambda path: ((path / "commitlog").mkdir(parents=True), (path / "commitlog/notes.txt").write_text("x")),
        "notes.txt: a foreign file",
    ),
}


@pytest.mark.parametrize(("make", "reason"), BAD_STORES.values(), ids=BAD_STORES.keys())
@pytest.mark.parametrize(
    "command",
    [
        ("get", "--topic", "t"),
        ("query", "--topic", "t", "--key", "k"),
        ("dump",),
        ("info",),
        ("stats",),
        ("rebuild", "--output", "OUT"),
    ],
    ids=lambda command: command[0],
)
def test_a_directory_that_is_no_store_is_refused_in_one_line(
    tmp_path: Path, run_reput: Run, command: tuple[str, ...], make: object, reason: str
) -> None:
    path = tmp_path / "it"
    make(path)  # type: ignore[operator]
    before = sorted(tmp_path.rglob("*"))
    arguments = [str(tmp_path / "out") if argument == "OUT" else argument for argument in command[1:]]
    answer = run_reput(command[0], path, *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith(f"reput: {path}")
    assert reason in answer.err
    assert answer.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("make", "reason"), [*BAD_STORES.values()][1:], ids=[*BAD_STORES][1:])
def test_nothing_is_put_where_something_else_lies(tmp_path: Path, run_reput: Run, make: object, reason: str) -> None:
    path = tmp_path / "it"
    make(path)  # type: ignore[operator]
    before = sorted(tmp_path.rglob("*"))
    answer = run_reput("put", path, "--topic", "t", "--body", "x")
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith(f"reput: {path}")
    assert reason in answer.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_bug_is_a_traceback_and_exit_2_since_1_means_findings() -> None:
    application = typer.Typer(cls=Application)
    application.callback()(lambda: None)

    @application.command()
    def broken() -> None:
        raise ZeroDivisionError

    result = CliRunner().invoke(application, ["broken"])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == "ZeroDivisionError"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("nope",), "nope"),
        (("--nope",), "--nope"),
        (("get",), "STORE"),
        (("get", "s"), "--topic"),
        (("get", "s", "--topic"), "--topic"),
        (("get", "s", "--topic", "t", "--offset", "x"), "--offset"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(run_reput: Run, arguments: tuple[str, ...], reason: str) -> None:
    answer = run_reput(*arguments)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("reput: ")
    assert reason in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        (("nope",), "reput: No such command 'nope'; see reput --help\n"),
        (("get", "--zzz"), "reput: No such option: --zzz; see reput get --help\n"),
        (("info", "store", "nope"), "reput: Got unexpected extra argument(s) (nope); see reput info --help\n"),
    ],
)
def test_what_no_command_has_is_told_with_the_help_that_lists_what_there_is(
    run_reput: Run, arguments: tuple[str, ...], whole: str
) -> None:
    assert run_reput(*arguments).err == whole


def test_the_version_is_that_of_the_package(run_reput: Run) -> None:
    assert run_reput("--version").out == f"reput {reput.__version__}\n"
