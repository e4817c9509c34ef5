"""What is deployed or run elsewhere: image, compose file, units of systemd and workflows name only what is there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from reput.config.broker import BrokerConfig, broker_configs
from reput.config.message_store import MessageStoreConfig
from reput.config.namesrv import NamesrvConfig
from reput.config.properties import parse_properties
from tests.support.commands import run_reput
from tests.support.shares import sampled
from tests.support.shop import make_shop

ROOT = Path(__file__).parents[1]
CONTAINERFILE = (ROOT / "deploy/Containerfile").read_text()
UNITS = ROOT / "deploy/systemd"
SERVING = sorted(path for path in UNITS.glob("*.service") if "Type=exec" in path.read_text().splitlines())
TIMERS = sorted(UNITS.glob("*.timer"))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OF_REPUT = [name for name, one in SERVICES.items() if one["image"] == "reput"]
PROXY: dict[str, Any] = json.loads((ROOT / "deploy/proxy.json").read_text())
#: Where each service of the compose file listens.
LISTENS = {
    "namesrv": {NamesrvConfig().listen_port},
    "broker": {MessageStoreConfig().listen_port, BrokerConfig().metrics_prom_exporter_port},
    "proxy": {PROXY["grpcServerPort"]},
    "prometheus": {9090},
    "grafana": {3000},
}
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
#: Ports that are free, after which each command below is started.
FREE = {
    "broker": ["--port", "0", "--set", "metricsPromExporterPort=0"],
    "namesrv": ["--port", "0"],
}
#: Of a broker that has its own name server.
FREE_NAMESRV = ["--namesrv-port", "0"]


#: Texts for users, and what of them may say `pip install reput`, though reput is not on PyPI: hints of a reput that is
#: installed, which get the packages of an extra, and what follows on a publication.
TEXTS = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "examples/**/*.md",
        "examples/**/*.py",
        "examples/**/*.ipynb",
        "src/**/*.py",
    )
    for path in ROOT.glob(pattern)
)
INSTALLED = ("If reput is installed already", "Install the published version")
HINTS = ("src/reput/extras.py", "src/reput/spark/java.py", "docs/troubleshooting.md")
BY_NAME = re.compile(r"pip install [^`\n]*?(?<![\w/-])reput(?![\w/-])")


def instruction(name: str) -> str:
    """The only instruction of its name in the Containerfile."""
    (found,) = re.findall(rf"^{name} (.*)$", CONTAINERFILE, re.MULTILINE)
    return str(found)


def starts_and_ends(command: list[str]) -> None:
    """A command of reput says that it is ready, and ends well at SIGTERM."""
    has_own_namesrv = command[0] == "broker" and not {"--namesrv", "--config"} & set(command)
    free = [*FREE[command[0]], *(FREE_NAMESRV if has_own_namesrv else [])]
    local = ["--set", "bindAddress=127.0.0.1"] if "bindAddress=0.0.0.0" not in command else []
    command = [word.replace("=0.0.0.0", "=127.0.0.1") for word in command]
    command = [sys.executable, "-m", "reput", *command, *free, *local]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
        finally:
            process.terminate()
    assert (ready.split(" ")[0], process.returncode) == ("ready", 0)


def words_of(service: str, host: str = r"\1") -> list[str]:
    """The words of a service's command, its variables with their defaults, or all with a host."""
    given = SERVICES[service].get("command", [])
    words = shlex.split(given) if isinstance(given, str) else given
    return [re.sub(r"\$\{\w+:-(\w+)\}", host, word) for word in words]


SERVED = [json.loads(instruction("CMD")), *map(words_of, OF_REPUT), words_of("broker", "127.0.0.1")]


@pytest.mark.parametrize("command", SERVED, ids=" ".join)
def test_what_is_served_in_a_container_is_reached_from_outside(command: list[str]) -> None:
    """In a container 127.0.0.1 is the container's own: a port that is published would lead to nobody."""
    given = dict(word.split("=", 1) for word in command if "=" in word)
    config = broker_configs(given)[0] if command[0] == "broker" else NamesrvConfig.from_mapping(given)
    assert config.bind_address == "0.0.0.0"


def test_image_copies_files_that_are_there() -> None:
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (.*)$", CONTAINERFILE, re.MULTILINE)]
    assert copied
    assert [path for paths in copied for path in paths if not (ROOT / path).exists()] == []


def test_command_of_the_image_starts(tmp_path: Path) -> None:
    assert json.loads(instruction("ENTRYPOINT")) == ["reput"]
    starts_and_ends([word.replace("/store", str(tmp_path / "store")) for word in json.loads(instruction("CMD"))])


@sampled(2)
@pytest.mark.parametrize("service", OF_REPUT)
def test_command_of_a_service_starts(service: str, tmp_path: Path) -> None:
    here = {"/store": str(tmp_path), "namesrv:9876": "127.0.0.1:1", "=broker": "=localhost"}
    pattern = re.compile("|".join(here))
    starts_and_ends([pattern.sub(lambda found: here[found[0]], word) for word in words_of(service)])


def test_services_ask_others_at_the_ports_where_these_listen() -> None:
    prometheus = yaml.safe_load((ROOT / "deploy/monitoring/prometheus.yml").read_text())
    grafana = yaml.safe_load((ROOT / "deploy/monitoring/grafana/datasource.yml").read_text())
    asked = [word for service in SERVICES for word in words_of(service) if re.fullmatch(r"\w+:\d+", word)]
    asked += [
        target for job in prometheus["scrape_configs"] for one in job["static_configs"] for target in one["targets"]
    ]
    asked += [one["url"].removeprefix("http://") for one in grafana["datasources"]]
    assert len(asked) == 4
    for host, port in (address.split(":") for address in asked):
        assert int(port) in LISTENS[host]
    published = {name: {int(port.rpartition(":")[2]) for port in one["ports"]} for name, one in SERVICES.items()}
    assert published == LISTENS
    exposed = set(map(int, instruction("EXPOSE").split()))
    assert LISTENS["namesrv"] | LISTENS["broker"] == exposed
    assert PROXY["rocketMQClusterName"] == BrokerConfig().broker_cluster_name


def test_services_depend_on_and_mount_what_is_there() -> None:
    mounted = [tuple(one.split(":")[:2]) for service in SERVICES.values() for one in service["volumes"]]
    files = [source for source, _ in mounted if source.startswith(".")]
    assert files
    assert [path for path in files if not (ROOT / "deploy" / path).is_file()] == []
    assert {source for source, _ in mounted} - set(files) == COMPOSE["volumes"].keys()
    assert {one for service in SERVICES.values() for one in service.get("depends_on", ())} <= SERVICES.keys()
    targets = [target for _, target in mounted]
    providers = yaml.safe_load((ROOT / "deploy/monitoring/grafana/dashboards.yml").read_text())["providers"]
    assert [
        one for one in providers if not any(path.startswith(one["options"]["path"] + "/") for path in targets)
    ] == []
    assert "/etc/reput/proxy.json" in words_of("proxy")
    assert "/etc/reput/proxy.json" in targets
    (build,) = {json.dumps(one["build"]) for one in SERVICES.values() if "build" in one}
    context, containerfile = json.loads(build).values()
    assert (ROOT / "deploy" / context / containerfile).is_file()
    assert [
        one["image"] for one in SERVICES.values() if "build" not in one and not re.search(r":v?\d", one["image"])
    ] == []


def parsed_unit(unit: Path) -> ConfigParser:
    """A unit; of keys that come twice the last one."""
    parsed = ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(unit)
    return parsed


def commands_of(unit: Path) -> list[list[str]]:
    """The arguments of reput in each command of a unit."""
    commands = [shlex.split(line) for line in re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)]
    assert {command[0] for command in commands} == {"/opt/reput/bin/reput"}
    return [command[1:] for command in commands]


@sampled(2)
def keys_of_unit(unit: Path) -> str:
    """The file of keys that a unit names, as it is beside the units and docs/broker.md installs it."""
    (command,) = commands_of(unit)
    installed = Path(command[command.index("--config") + 1])
    assert installed.parent == Path("/etc/reput")
    return (UNITS / installed.name).read_text()


@pytest.mark.parametrize("unit", SERVING, ids=lambda unit: unit.stem)
def test_command_of_the_unit_starts(unit: Path, tmp_path: Path) -> None:
    parsed = parsed_unit(unit)
    (command,) = commands_of(unit)
    state = "/var/lib/" + parsed["Service"]["StateDirectory"]
    assert any(state in word for word in command)
    (tmp_path / f"{command[0]}.conf").write_text(keys_of_unit(unit).replace("127.0.0.1:9876", "127.0.0.1:1"))
    starts_and_ends([word.replace(state, str(tmp_path)).replace("/etc/reput", str(tmp_path)) for word in command])


def test_units_of_broker_and_name_server_run_side_by_side() -> None:
    """Without `namesrvAddr` the broker runs a name server itself, at the port that the other unit has taken."""
    broker = parse_properties(keys_of_unit(UNITS / "reput-broker.service"), "broker.conf")
    server = NamesrvConfig.from_broker_conf(keys_of_unit(UNITS / "reput-namesrv.service"), "namesrv.conf")
    assert broker["namesrvAddr"] == f"{server.bind_address}:{server.listen_port}"


@pytest.mark.parametrize("timer", TIMERS, ids=lambda timer: timer.stem)
def test_a_timer_starts_a_unit_that_ends(timer: Path) -> None:
    parsed = parsed_unit(timer)
    assert parsed["Timer"]["OnCalendar"]
    assert parsed["Install"]["WantedBy"] == "timers.target"
    assert parsed_unit(timer.with_suffix(".service"))["Service"]["Type"] == "oneshot"


def test_unit_of_backups_takes_one_of_the_brokers_store_and_removes_old_ones(tmp_path: Path) -> None:
    unit = UNITS / "reput-backup.service"
    here = {"/var/lib/reput-broker/store": make_shop(tmp_path / "store"), "/var/backups/reput": tmp_path / "backups"}
    assert "/var/lib/reput-broker/store" in commands_of(UNITS / "reput-broker.service")[0]
    writable = parsed_unit(unit)["Service"]["ReadWritePaths"].split()
    assert [path for path in here if not any(path.startswith(one) for one in writable)] == []
    for _ in range(2):
        for command in commands_of(unit):
            answer = run_reput(*(here.get(word, word) for word in command))
            assert (answer.status, answer.err) == (0, "")
    assert len(run_reput("backups", tmp_path / "backups", "--json").object()["backups"]) == 1  # one a day


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.stem)
def test_workflow_runs_targets_and_files_that_are_there(workflow: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    commands = [step["run"] for job in jobs for step in job.get("steps", ()) if "run" in step]
    made = [target for command in commands if command.startswith("make ") for target in command.split()[1:]]
    paths = [word for command in commands for word in command.split() if re.match(r"(tests/|\.ci/)", word)]
    paths += [job["uses"] for job in jobs if "uses" in job]
    assert made
    assert [target for target in made if target not in targets] == []
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_workflows_try_each_python_that_the_package_names() -> None:
    declared = set(re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text()))
    tried = set(re.findall(r'"(3\.\d+)"', (ROOT / ".github/workflows/ci.yml").read_text()))
    assert declared <= tried


def test_reput_is_installed_by_its_name_only_where_it_is_installed_already() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in TEXTS
        if str(path.relative_to(ROOT)) not in HINTS
        for paragraph in path.read_text(encoding="utf-8").split("\n\n")
        if not any(words in paragraph for words in INSTALLED)
        for match in BY_NAME.finditer(paragraph)
    ]
    assert len(TEXTS) > 100
    assert found == []


@pytest.mark.parametrize("text", ["pip install reput", "pip install 'reput[lake]' s3fs", "pip install pandas reput"])
def test_each_way_to_install_it_by_its_name_is_noticed(text: str) -> None:
    assert BY_NAME.search(text)


@pytest.mark.parametrize(
    "text", ["pip install '.[lake]'", "pip install dist/reput-1-py3-none-any.whl", "pip install pandas"]
)
def test_a_clone_and_a_wheel_are_no_names(text: str) -> None:
    assert not BY_NAME.search(text)
