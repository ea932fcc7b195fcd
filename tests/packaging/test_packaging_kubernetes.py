"""The manifests for Kubernetes, which the Helm chart makes: valid for its schemas, in agreement with the daemons."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_network import ComposeNetwork, why_not

from triomq._version import RELEASE
from triomq.broker.__main__ import STOP_DEADLINE_SECONDS as BROKER_STOP_SECONDS
from triomq.broker.configuration import Configuration
from triomq.broker.start_warnings import start_warnings
from triomq.daemon.configuration import check_namesrv_addresses, load_configuration
from triomq.daemon.environment import read_environment
from triomq.namesrv.__main__ import STOP_DEADLINE_SECONDS as NAMESRV_STOP_SECONDS
from triomq.namesrv.config import bind_settings, namesrv_defaults
from triomq.remoting.tls import TlsSettings

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
DIRECTORY, CHARTS = PACKAGING / "kubernetes", PACKAGING / "helm"
RENDERED = sorted(path.name for path in (CHARTS / "values").glob("*.yaml"))
HELM = os.environ.get("HELM") or shutil.which("helm")
DATA = "/var/lib/triomq"
Resource = dict[str, Any]


def resources(file: str) -> list[Resource]:
    return [one for one in yaml.safe_load_all((DIRECTORY / file).read_text()) if one is not None]


def of_kind(file: str, kind: str) -> dict[str, Resource]:
    return {one["metadata"]["name"]: one for one in resources(file) if one["kind"] == kind}


def pod(stateful_set: Resource) -> Resource:
    spec: Resource = stateful_set["spec"]["template"]["spec"]
    return spec


SETS = [(file, name) for file in RENDERED for name in of_kind(file, "StatefulSet")]
BROKERS = [(file, name) for file, name in SETS if "namesrv" not in name]


def the_set(file: str, name: str) -> Resource:
    return of_kind(file, "StatefulSet")[name]


def domain(service: str) -> str:
    return f"{service}.triomq.svc.cluster.local"


def make_configuration(file: str, name: str, number: int, directory: Path) -> Path:
    """Run the script of the init container for one pod, with its paths below `directory`. Return the file it makes."""
    (init,) = pod(the_set(file, name))["initContainers"]
    for below in ("configuration", "tmp", DATA[1:]):
        (directory / below).mkdir(parents=True, exist_ok=True)
    script = re.sub(rf"(?=/configuration|/tmp/|{DATA})", lambda _: str(directory), init["command"][-1])
    configuration = of_kind(file, "ConfigMap")[name]["data"]
    (conf,) = configuration
    given = directory / "configuration" / conf
    if not given.exists():
        given.write_text(configuration[conf])
    assert init["env"][0] == {"name": "FILE", "value": conf}
    variables = {"FILE": conf, "POD_NAME": f"{name}-{number}", "PATH": os.environ["PATH"]}
    subprocess.run([*init["command"][:-1], script], env=variables, check=True, timeout=30)
    return directory / DATA[1:] / "etc" / conf


@pytest.mark.parametrize("version", ["1.29", "1.33"])
@pytest.mark.parametrize("file", [*RENDERED, "namespace.yaml"])
def test_the_manifests_are_valid(file: str, version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    for resource in resources(file):
        validator.validate(resource, version, strict=True)
        assert resource["metadata"].get("namespace", "triomq") == "triomq"
    if file in RENDERED:
        kinds = {"ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy"}
        assert {resource["kind"] for resource in resources(file)} == kinds


def test_the_validator_sees_mistakes() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    wrong = of_kind("group.yaml", "Service")["triomq-namesrv"]
    wrong["spec"]["portz"] = wrong["spec"].pop("ports")
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, "1.33", strict=True)


@pytest.mark.parametrize("file", RENDERED)
def test_the_manifests_were_rendered_from_the_chart_as_it_is(file: str) -> None:
    """packaging/kubernetes/render does it."""
    sources = sorted(str(p.relative_to(CHARTS)) for p in (CHARTS / "triomq").rglob("*") if p.is_file())
    lines = [f"{hashlib.sha256((CHARTS / p).read_bytes()).hexdigest()}  {p}\n" for p in [*sources, f"values/{file}"]]
    assert f"# {hashlib.sha256(''.join(lines).encode()).hexdigest()}\n" in (DIRECTORY / file).read_text()


@pytest.mark.skipif(HELM is None, reason="helm is not installed")
def test_helm_renders_the_same_manifests(tmp_path: Path) -> None:
    assert HELM is not None
    subprocess.run([DIRECTORY / "render", tmp_path], env={**os.environ, "HELM": HELM}, check=True, timeout=60)
    for file in RENDERED:
        assert (tmp_path / file).read_text() == (DIRECTORY / file).read_text()
    subprocess.run([HELM, "lint", "--strict", CHARTS / "triomq"], check=True, timeout=60)


def test_the_chart_is_of_this_version_and_its_schema_knows_its_values() -> None:
    chart = yaml.safe_load((CHARTS / "triomq/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (RELEASE, RELEASE)
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((CHARTS / "triomq/values.schema.json").read_text())
    defaults = yaml.safe_load((CHARTS / "triomq/values.yaml").read_text())
    for path in (CHARTS / "values").glob("*.yaml"):
        values = yaml.safe_load(path.read_text())
        jsonschema.validate({**defaults, **values}, schema)
    for wrong in ({"kind": "trio"}, {"kind": "pair", "storge": "1Gi"}, {"kind": "pair", "name": "Broker_A"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**defaults, "brokers": [{"name": "broker-a", **wrong}]}, schema)


@pytest.mark.parametrize(("file", "name"), SETS)
def test_a_stateful_set_has_its_service_its_configuration_and_its_budget(file: str, name: str) -> None:
    one = the_set(file, name)
    labels = one["spec"]["template"]["metadata"]["labels"]
    service = of_kind(file, "Service")[one["spec"]["serviceName"]]["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True), "members find each other"
    assert service["selector"].items() <= labels.items()
    assert one["spec"]["podManagementPolicy"] == "Parallel", "a member alone is never ready"
    container = pod(one)["containers"][0]
    named = {(port["name"], port["containerPort"]) for port in container["ports"]}
    assert named == {(port["name"], port["port"]) for port in service["ports"]}
    assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()
    budgets = of_kind(file, "PodDisruptionBudget").values()
    (budget,) = [b["spec"] for b in budgets if b["spec"]["selector"]["matchLabels"].items() <= labels.items()]
    assert budget["maxUnavailable"] == 1
    assert container["image"] == pod(one)["initContainers"][0]["image"] == f"triomq:{RELEASE}"
    volumes = {volume["name"]: volume for volume in pod(one)["volumes"]}
    assert volumes["configuration"]["configMap"]["name"] in of_kind(file, "ConfigMap")


@pytest.mark.parametrize(("file", "name"), BROKERS)
def test_the_configuration_of_each_broker(file: str, name: str, tmp_path: Path) -> None:
    container = pod(the_set(file, name))["containers"][0]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    for number in range(the_set(file, name)["spec"]["replicas"]):
        path = make_configuration(file, name, number, tmp_path / str(number))
        layers = load_configuration(read_environment(variables), file=path)
        layers.expect(TlsSettings)
        configuration = Configuration.from_layers(layers)
        assert layers.unknown_keys() == {}
        own = f"{name}-{number}.{domain(name)}"
        assert (configuration.broker.broker_ip1, configuration.broker.broker_ip2) == (own, own)
        assert [one["containerPort"] for one in container["ports"]] == ports(configuration)
        if configuration.group is not None:
            members = {f"n{peer}": f"{name}-{peer}.{domain(name)}:40911" for peer in range(3)}
            assert (configuration.group.setup.self_id, configuration.group.setup.members) == (f"n{number}", members)
        if name.endswith("-slave"):
            master = name.removesuffix("-slave")
            assert configuration.store.ha_master_address == f"{master}-0.{domain(master)}:10912"
            assert configuration.broker.broker_name == master.removeprefix("triomq-")
        assert configuration.broker.acl_enable == (file == "secured.yaml")
        if file != "secured.yaml":  # its certificates are not here
            assert list(start_warnings(configuration)) == []
        assert configuration.store.store_path_root_dir.startswith(DATA + "/")
    assert f"{DATA}/etc/broker.conf" == container["command"][-1]
    assert DATA in [mount["mountPath"] for mount in container["volumeMounts"]]


def ports(configuration: Configuration) -> list[int]:
    port, group = configuration.server.listen_port, configuration.group
    between = group.port if group is not None else port + 1
    return [port, port - 2, between, configuration.broker.grpc_server_port, 5557]


def test_what_was_changed_at_run_time_stays_until_the_config_map_changes(tmp_path: Path) -> None:
    path = make_configuration("group.yaml", "triomq-broker-a", 1, tmp_path)
    given = path.read_text()
    assert "dLegerSelfId=n1\n" in given
    path.write_text(given.replace("fileReservedTime=48", "fileReservedTime=24"))
    make_configuration("group.yaml", "triomq-broker-a", 1, tmp_path)
    assert "fileReservedTime=24" in path.read_text()
    with (tmp_path / "configuration/broker.conf").open("a") as config_map:
        config_map.write("maxMessageSize=65536\n")
    make_configuration("group.yaml", "triomq-broker-a", 1, tmp_path)
    assert path.read_text() == given + "maxMessageSize=65536\n"


@pytest.mark.parametrize("file", RENDERED)
def test_the_configuration_of_the_name_servers_and_their_addresses(file: str, tmp_path: Path) -> None:
    path = make_configuration(file, "triomq-namesrv", 0, tmp_path)
    layers = load_configuration(read_environment({}), file=path, defaults=namesrv_defaults(tmp_path))
    layers.expect(TlsSettings)
    _, server = bind_settings(layers)
    assert layers.unknown_keys() == {}
    replicas = the_set(file, "triomq-namesrv")["spec"]["replicas"]
    service = domain("triomq-namesrv")
    expected = ";".join(f"triomq-namesrv-{number}.{service}:{server.listen_port}" for number in range(replicas))
    check_namesrv_addresses(expected, "NAMESRV_ADDR")
    for name in of_kind(file, "StatefulSet"):
        assert {"name": "NAMESRV_ADDR", "value": expected} in pod(the_set(file, name))["containers"][0]["env"]


@pytest.mark.parametrize(("file", "name"), SETS)
def test_probes_ask_the_health_pages_and_a_stop_has_time(file: str, name: str) -> None:
    container = pod(the_set(file, name))["containers"][0]
    pages = {"startupProbe": "live", "livenessProbe": "live", "readinessProbe": "ready"}
    for probe, page in pages.items():
        assert container[probe]["httpGet"] == {"path": f"/health/{page}", "port": "metrics"}
    (port,) = [one["containerPort"] for one in container["ports"] if one["name"] == "metrics"]
    (configuration,) = of_kind(file, "ConfigMap")[name]["data"].values()
    assert f"metricsPort={port}\nmetricsAddress=0.0.0.0\n" in configuration
    annotations = the_set(file, name)["spec"]["template"]["metadata"]["annotations"]
    scraped = {key: annotations[f"prometheus.io/{key}"] for key in ("scrape", "port", "path")}
    assert scraped == {"scrape": "true", "port": str(port), "path": "/metrics"}
    kind = container["command"][0].removeprefix("mq")
    deadline = {"broker": BROKER_STOP_SECONDS, "namesrv": NAMESRV_STOP_SECONDS}[kind]
    assert pod(the_set(file, name))["terminationGracePeriodSeconds"] >= deadline + 5


@pytest.mark.parametrize(("file", "name"), SETS)
def test_pods_are_confined(file: str, name: str) -> None:
    context = pod(the_set(file, name))["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"], context["fsGroup"]) == (True, 10911, 10911)
    assert "--uid 10911 triomq" in (PACKAGING.parent / "Dockerfile").read_text()
    for container in (*pod(the_set(file, name))["containers"], *pod(the_set(file, name))["initContainers"]):
        rights = container["securityContext"]
        assert (rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"]) == (False, True)
        assert rights["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.slow
def test_the_pods_of_a_group_elect_a_master_become_ready_and_take_changes(tmp_path: Path) -> None:
    """Without Kubernetes: a namespace for each pod, and its DNS names in a hosts file."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    document: dict[str, dict[str, Any]] = {"services": {}, "configs": {}}
    names = {}
    for set_name, short in (("triomq-namesrv", "ns"), ("triomq-broker-a", "b")):
        (container,) = pod(the_set("group.yaml", set_name))["containers"]
        for number in range(3 if short == "b" else 2):
            content = make_configuration("group.yaml", set_name, number, tmp_path / f"{short}{number}").read_text()
            names[f"{short}{number}"] = f"{set_name}-{number}.{domain(set_name)}"
            document["configs"][f"{short}{number}"] = {"content": content + "configUpdateWithoutAcl=true\n"}
            document["services"][f"{short}{number}"] = {
                "command": container["command"],
                "configs": [{"source": f"{short}{number}", "target": container["command"][-1]}],
                "environment": {entry["name"]: entry["value"] for entry in container["env"]},
                "ports": [],
            }
    variables = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(PACKAGING.parent / "src"),
        "HOME": str(tmp_path),
        "NAMESRV_ADDR": document["services"]["b0"]["environment"]["NAMESRV_ADDR"],
    }
    with ComposeNetwork(document, tmp_path / "pods", variables, names) as network:
        for name in names:
            network.start(name)
        for name, host in names.items():  # as the kubelet asks: at the pod's address
            network.wait_until(name, [sys.executable, "-m", "triomq.daemon.health", "ready", f"{host}:5557"])
        admin = [sys.executable, "-m", "triomq.admin"]
        network.wait_until("ns1", [*admin, "dledger", "members", "broker-a"])
        assert "CRITICAL" not in network.run("ns1", [*admin, "doctor"]).stdout
        changed = network.run("b1", [*admin, "config", "set", "quotaPerAddress", "connections=200", "--yes"])
        assert changed.returncode == 0, changed.stderr
        for name in ("b0", "b1", "b2"):
            assert "quotaPerAddress=connections=200\n" in (tmp_path / "pods" / f"{name}.conf").read_text()


@pytest.mark.parametrize("file", RENDERED)
def test_others_reach_only_the_ports_of_clients_and_of_metrics(file: str) -> None:
    (policy,) = of_kind(file, "NetworkPolicy").values()
    for name in of_kind(file, "StatefulSet"):
        labels = the_set(file, name)["spec"]["template"]["metadata"]["labels"]
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    members, clients, metrics = policy["spec"]["ingress"]
    assert members == {"from": [{"podSelector": policy["spec"]["podSelector"]}]}
    assert {one["port"] for one in clients["ports"]} == {9876, 10911, 10909, 8081}
    assert {one["port"] for one in metrics["ports"]} == {5557}
    assert all(list(peer) == ["namespaceSelector"] for rule in (clients, metrics) for peer in rule["from"])


def test_accounts_and_certificates_come_from_secrets() -> None:
    for _, name in (one for one in SETS if one[0] == "secured.yaml"):
        container = pod(the_set("secured.yaml", name))["containers"][0]
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        image = (PACKAGING.parent / "Dockerfile").read_text()
        assert "ROCKETMQ_HOME=/opt/triomq " in image
        assert (mounts["accounts"]["mountPath"], mounts["accounts"]["readOnly"]) == ("/opt/triomq/conf", True)
        volumes = {volume["name"]: volume for volume in pod(the_set("secured.yaml", name))["volumes"]}
        for volume in ("accounts", "tls"):  # 0440: a file that everybody could read is refused
            assert volumes[volume]["secret"] == {"secretName": f"triomq-{volume}", "defaultMode": 0o440}
        (configuration,) = of_kind("secured.yaml", "ConfigMap")[name]["data"].values()
        files = re.findall(r"=(/etc/triomq/tls/.*)", configuration)
        assert {Path(file).name for file in files} == {"tls.crt", "tls.key", "ca.crt"}
        assert {str(Path(file).parent) for file in files} == {mounts["tls"]["mountPath"]}
