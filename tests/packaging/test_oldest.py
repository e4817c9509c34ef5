"""`make test-oldest` installs the oldest packages that pyproject.toml allows."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

from packaging.requirements import Requirement

from tests.support.cluster.wheel import ROOT


def of_users() -> Iterator[Requirement]:
    """Every package that some extra, or the core, brings to a user."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for name, texts in {"core": project["dependencies"], **extras}.items():
        if name != "dev":
            yield from (each for each in map(Requirement, texts) if each.name != project["name"])


def bounds(requirement: Requirement, operator: str) -> list[str]:
    return [each.version for each in requirement.specifier if each.operator == operator]


def test_the_oldest_packages_are_the_lower_bounds() -> None:
    lines = (ROOT / "tests/packaging/oldest.txt").read_text().splitlines()
    named = [Requirement(line) for line in lines if not line.startswith("#")]
    assert [each.name for each in named if each.extras] == []  # pip refuses constraints with extras
    oldest = {each.name: bounds(each, "==") for each in named}
    assert oldest == {each.name: bounds(each, ">=") for each in of_users()}


def test_the_tests_run_with_the_oldest_pytest_that_the_fixture_allows() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert [options["minversion"]] == [bounds(each, ">=")[0] for each in of_users() if each.name == "pytest"]


def test_every_package_has_an_upper_bound() -> None:
    assert [each.name for each in of_users() if len(bounds(each, "<")) != 1] == []
