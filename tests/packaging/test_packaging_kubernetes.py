"""The Kubernetes manifests are valid for the schemas of Kubernetes and agree with the daemons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from triomq._version import RELEASE
from triomq.broker.__main__ import STOP_DEADLINE_SECONDS as BROKER_STOP_SECONDS
from triomq.broker.configuration import Configuration
from triomq.broker.start_warnings import start_warnings
from triomq.daemon.configuration import check_namesrv_addresses, load_configuration
from triomq.daemon.environment import read_environment
from triomq.daemon.health import parser as health_parser
from triomq.namesrv.__main__ import STOP_DEADLINE_SECONDS as NAMESRV_STOP_SECONDS
from triomq.namesrv.config import bind_settings, namesrv_defaults

DIRECTORY = Path(__file__).resolve().parents[2] / "packaging/kubernetes"
Resource = dict[str, Any]


def resources() -> Iterator[Resource]:
    for path in sorted(DIRECTORY.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


def of_kind(kind: str) -> dict[str, Resource]:
    return {one["metadata"]["name"]: one for one in resources() if one["kind"] == kind}


def pod(stateful_set: Resource) -> Resource:
    spec: Resource = stateful_set["spec"]["template"]["spec"]
    return spec


SETS = of_kind("StatefulSet")
BROKERS = [name for name in SETS if name.startswith("broker")]


@pytest.mark.parametrize("version", ["1.29", "1.33"])
def test_the_manifests_are_valid(version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    kinds = []
    for resource in resources():
        validator.validate(resource, version, strict=True)
        kinds.append(resource["kind"])
    assert set(kinds) == {"Namespace", "ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget"}


def test_the_validator_sees_mistakes() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    wrong = of_kind("Service")["namesrv"]
    wrong["spec"]["portz"] = wrong["spec"].pop("ports")
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, "1.33", strict=True)


@pytest.mark.parametrize("name", SETS)
def test_a_stateful_set_has_its_service_its_configuration_and_its_budget(name: str) -> None:
    labels = SETS[name]["spec"]["template"]["metadata"]["labels"]
    service = of_kind("Service")[SETS[name]["spec"]["serviceName"]]["spec"]
    assert (service["clusterIP"], service["selector"].items() <= labels.items()) == ("None", True)
    container = pod(SETS[name])["containers"][0]
    named = {(port["name"], port["containerPort"]) for port in container["ports"]}
    assert named == {(port["name"], port["port"]) for port in service["ports"]}
    assert SETS[name]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    selectors = [budget["spec"]["selector"]["matchLabels"] for budget in of_kind("PodDisruptionBudget").values()]
    assert sum(selector.items() <= labels.items() for selector in selectors) == 1
    assert container["image"] == f"triomq:{RELEASE}"
    volumes = {volume["name"]: volume for volume in pod(SETS[name])["volumes"]}
    assert volumes["configuration"]["configMap"]["name"] in of_kind("ConfigMap")


def files(name: str) -> dict[str, str]:
    data: dict[str, str] = of_kind("ConfigMap")[name]["data"]
    return data


@pytest.mark.parametrize("name", BROKERS)
def test_the_configuration_of_a_broker(name: str, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text(files(name)["broker.conf"])
    container = pod(SETS[name])["containers"][0]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    layers = load_configuration(read_environment(variables), file=tmp_path / "broker.conf")
    configuration = Configuration.from_layers(layers)
    assert layers.unknown_keys() == {}
    assert list(start_warnings(configuration)) == []
    assert configuration.broker.namesrv_addr is not None
    check_namesrv_addresses(configuration.broker.namesrv_addr, "NAMESRV_ADDR")
    own = f"{name}-0.{SETS[name]['spec']['serviceName']}.triomq.svc.cluster.local"
    assert (configuration.broker.broker_ip1, configuration.broker.broker_ip2) == (own, own)
    port = configuration.server.listen_port
    grpc_port = [configuration.broker.grpc_server_port] if configuration.is_grpc_port_chosen else []
    assert [one["containerPort"] for one in container["ports"]] == [port, port - 2, port + 1, *grpc_port]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert any(configuration.store.store_path_root_dir.startswith(mount + "/") for mount in mounts)
    if name.endswith("-slave"):
        master = name.removesuffix("-slave")
        assert configuration.store.ha_master_address == f"{master}-0.{master}.triomq.svc.cluster.local:{port + 1}"
        assert configuration.broker.broker_name == master


def test_the_configuration_of_the_name_servers_and_their_addresses(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text(files("namesrv")["namesrv.conf"])
    layers = load_configuration(read_environment({}), file=path, defaults=namesrv_defaults(tmp_path))
    _, server = bind_settings(layers)
    assert layers.unknown_keys() == {}
    expected = ";".join(
        f"namesrv-{number}.namesrv.triomq.svc.cluster.local:{server.listen_port}"
        for number in range(SETS["namesrv"]["spec"]["replicas"])
    )
    for name in BROKERS:
        assert {"name": "NAMESRV_ADDR", "value": expected} in pod(SETS[name])["containers"][0]["env"]


@pytest.mark.parametrize("name", SETS)
def test_probes_ask_the_daemon_and_its_stop_has_time(name: str) -> None:
    container = pod(SETS[name])["containers"][0]
    kind = container["command"][0].removeprefix("mq")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        program, *arguments = container[probe]["exec"]["command"]
        options = health_parser().parse_args(arguments)
        assert (program, options.kind) == ("mqhealth", kind)
        assert int(options.address) == container["ports"][0]["containerPort"]
        assert container[probe]["timeoutSeconds"] > options.timeout
    deadline = {"broker": BROKER_STOP_SECONDS, "namesrv": NAMESRV_STOP_SECONDS}[kind]
    assert pod(SETS[name])["terminationGracePeriodSeconds"] >= deadline + 5


@pytest.mark.parametrize("name", SETS)
def test_pods_are_confined(name: str) -> None:
    context = pod(SETS[name])["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, 10911)
    assert "--uid 10911 triomq" in (DIRECTORY.parents[1] / "Dockerfile").read_text()
    container = pod(SETS[name])["containers"][0]["securityContext"]
    assert (container["allowPrivilegeEscalation"], container["readOnlyRootFilesystem"]) == (False, True)
    assert container["capabilities"] == {"drop": ["ALL"]}
