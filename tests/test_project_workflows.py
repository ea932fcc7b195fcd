"""The files for the forge: workflows match their schema, and everything that they name exists."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def document(path: Path) -> dict[str, Any]:
    """Read a YAML file; the key `on` stays text."""
    loaded = yaml.load(path.read_text(), Loader=yaml.BaseLoader)
    assert isinstance(loaded, dict)
    return loaded


def commands(path: Path) -> list[str]:
    """Return the commands in the steps of a workflow, or in the hooks of pre-commit."""
    if path.name == ".pre-commit-config.yaml":
        return [hook["entry"] for repo in document(path)["repos"] for hook in repo["hooks"]]
    jobs = document(path)["jobs"].values()
    return [step["run"] for job in jobs for step in job.get("steps", []) if "run" in step]


def check_schema(schema: str, *paths: Path) -> None:
    """Compare files with a schema that check-jsonschema includes, so nothing is downloaded."""
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_fit_the_schema_of_the_forge() -> None:
    check_schema("vendor.github-workflows", *WORKFLOWS)


def test_templates_and_update_rules_fit_their_schemas() -> None:
    check_schema("vendor.dependabot", ROOT / ".github/dependabot.yml")
    check_schema("vendor.github-issue-forms", ROOT / ".github/ISSUE_TEMPLATE/fault.yml")
    check_schema("vendor.github-issue-config", ROOT / ".github/ISSUE_TEMPLATE/config.yml")


def test_the_schema_refuses_what_is_no_workflow(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("on: push\njobs:\n  one:\n    steps: {}\n")
    with pytest.raises(AssertionError, match=r"wrong\.yml"):
        check_schema("vendor.github-workflows", wrong)


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / ".pre-commit-config.yaml"], ids=lambda path: path.name)
def test_every_script_and_test_that_is_run_exists(path: Path) -> None:
    named = re.findall(r"(?:\./)?((?:bin|tests)/[\w./*-]+)", "\n".join(commands(path)))
    named = [name for name in named if not name.startswith(("bin/pip", "bin/python", "bin/mqbroker", "bin/mqnamesrv"))]
    assert [name for name in named if not list(ROOT.glob(name))] == []


def test_markers_that_are_selected_are_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    names = {line.partition(":")[0] for line in declared}
    selected = re.findall(r'-m "([\w ]+)"', "\n".join(commands(ROOT / ".github/workflows/ci.yml")))
    assert selected
    assert {word for text in selected for word in text.split()} - {"not", "and", "or"} <= names


def test_every_python_that_the_package_claims_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    tested = document(ROOT / ".github/workflows/ci.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert claimed == tested
    assert project["requires-python"] == f">={tested[0]}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_end_by_themselves_and_may_only_read(path: Path) -> None:
    workflow = document(path)
    assert workflow["permissions"] == {"contents": "read"}
    jobs = {name: job for name, job in workflow["jobs"].items() if "uses" not in job}
    assert [name for name, job in jobs.items() if "timeout-minutes" not in job] == []
    assert [name for name, job in jobs.items() if "permissions" in job and "environment" not in job] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_text_from_outside_never_becomes_part_of_a_command(path: Path) -> None:
    outside = re.findall(r"\$\{\{(?!\s*matrix\.)[^}]*\}\}", "\n".join(commands(path)))
    assert outside == [], "pass it as an environment variable"
