"""The configuration files of the project: every key has a meaning, and the scripts find the files that they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from triomq._version import RELEASE
from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.daemon.configuration import load_configuration
from triomq.daemon.environment import read_environment
from triomq.namesrv.config import bind_settings
from triomq.protocol import java_properties
from triomq.remoting.config import ClientSettings, ServerSettings
from triomq.store.config import StoreSettings

ROOT = Path(__file__).resolve().parent.parent
BROKER_FILES = sorted([ROOT / "conf/broker.conf", *ROOT.glob("conf/2m-*/*.properties")])
MEMBER_FILES = sorted(ROOT.glob("conf/dledger/*.conf"))


def uncommented(text: str) -> str:
    """Return the file with its commented-out settings enabled."""
    return re.sub(r"(?m)^#(?=\w+=)", "", text)


@pytest.mark.parametrize("path", BROKER_FILES, ids=lambda path: path.name)
def test_broker_files(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_text(uncommented(path.read_text()))
    layers = load_configuration(read_environment({}), file=copy)
    broker, store = layers.bind(BrokerSettings), layers.bind(StoreSettings)
    layers.bind(ServerSettings)
    layers.bind(ClientSettings)
    assert layers.unknown_keys() == {}
    assert (broker.broker_id > 0) == (store.broker_role.name == "SLAVE")


def test_the_files_of_a_group_are_those_of_its_three_members(tmp_path: Path) -> None:
    members = []
    for path in MEMBER_FILES:
        copy = tmp_path / path.name
        copy.write_text(uncommented(path.read_text()))
        configuration = Configuration.from_layers(load_configuration(read_environment({}), file=copy))
        assert configuration.unknown == {}
        group = configuration.group
        assert group is not None
        assert path.name == f"broker-{group.setup.self_id}.conf"
        members.append((configuration, group))
    assert [group.setup.self_id for _, group in members] == ["n0", "n1", "n2"]
    assert len({(configuration.broker.broker_name, group.setup.group) for configuration, group in members}) == 1
    assert len({tuple(group.setup.members.items()) for _, group in members}) == 1
    ports = [port for configuration, _ in members for port in (configuration.server.listen_port + at for at in (0, -2))]
    ports += [group.port for _, group in members]
    assert len(set(ports)) == 9, "they run on one machine"
    assert len({configuration.store.store_path_root_dir for configuration, _ in members}) == 3


def test_the_namesrv_file(tmp_path: Path) -> None:
    copy = tmp_path / "namesrv.conf"
    copy.write_text(uncommented((ROOT / "conf/namesrv.conf").read_text()))
    layers = load_configuration(read_environment({}), file=copy)
    settings, server = bind_settings(layers)
    assert layers.unknown_keys() == {}
    assert (server.listen_port, settings.product_env_name) == (9876, "center")


def test_the_acl_file_lets_nobody_in() -> None:
    document = yaml.safe_load((ROOT / "conf/plain_acl.yml").read_text())
    assert document == {"globalWhiteRemoteAddresses": [], "accounts": []}
    assert yaml.safe_load((ROOT / "conf/tools.yml").read_text()) is None


def test_docker_compose() -> None:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = document["services"]
    members = {f"dledger-n{number}" for number in range(3)}
    assert set(services) == {"network", "namesrv", "broker-a", "broker-b", "broker-a-s", "broker-b-s", *members}
    published = ["9876:9876"]
    for name in sorted(services.keys() - {"network"}):
        assert services[name]["network_mode"] == "service:network"
        assert "ports" not in services[name]
        values = java_properties.parse(document["configs"][name]["content"])
        published += ports_of_operators(values)
        if name != "namesrv":
            port = int(values["listenPort"])
            published += [f"{each}:{each}" for each in (port, port - 2)]
            published += [f"{each}:{each}" for each in [values["grpcServerPort"]] if each != "0"]
            assert services[name]["environment"] == {"NAMESRV_ADDR": "127.0.0.1:9876"}
            # As the services share a network, this address leads to the broker from all of them and from the host.
            assert values["brokerIP1"] == "${BROKER_IP:-127.0.0.1}"
    assert sorted(services["network"]["ports"]) == sorted(published)
    assert len(set(published)) == len(published)
    for name in ("broker-a", "broker-b"):
        values = java_properties.parse(document["configs"][name]["content"])
        slave = java_properties.parse(document["configs"][f"{name}-s"]["content"])
        assert values["brokerName"] == slave["brokerName"] == name
        assert (slave["brokerRole"], slave["brokerId"]) == ("SLAVE", "1")
        assert slave["haMasterAddress"] == f"127.0.0.1:{int(values['listenPort']) + 1}"
        assert services[f"{name}-s"]["profiles"] == ["2m-2s"]
        assert slave["grpcServerPort"] == "0", "it shares the addresses of its master"


def ports_of_operators(values: dict[str, str]) -> list[str]:
    """Return how metrics and dashboard are published: on the host's loopback address, since nobody logs in there."""
    assert (values["metricsAddress"], values["dashboardAddress"]) == ("0.0.0.0", "0.0.0.0")
    assert (values["dashboardInsecure"], values.get("dashboardReadOnly", "true")) == ("true", "true")
    return [f"127.0.0.1:{values[key]}:{values[key]}" for key in ("metricsPort", "dashboardPort")]


def test_the_members_of_a_group_in_docker_compose_find_each_other() -> None:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for number in range(3):
        name = f"dledger-n{number}"
        values = java_properties.parse(document["configs"][name]["content"])
        group = Configuration.from_values({key: value for key, value in values.items() if key != "brokerIP1"}).group
        assert group is not None
        assert group.setup.self_id == f"n{number}"
        assert group.setup.members == {f"n{peer}": f"127.0.0.1:{40911 + peer}" for peer in range(3)}
        assert document["services"][name]["profiles"] == ["dledger"]


def test_every_service_is_built_here_checked_for_health_and_keeps_its_data() -> None:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for name, service in document["services"].items():
        assert service["image"] == f"triomq:{RELEASE}"
        # Compose builds what is missing, asks no registry, and does not build again at each `up`.
        assert (service["build"], service["pull_policy"]) == (".", "never")
        assert service["logging"] == {"driver": "json-file", "options": {"max-size": "20m", "max-file": "5"}}
        if name == "network":
            assert service["healthcheck"] == {"disable": True}
            continue
        assert service["volumes"] == [f"{name}:/var/lib/triomq"]
        assert name in document["volumes"]
        values = java_properties.parse(document["configs"][name]["content"])
        check = ["CMD", "python", "-m", "triomq.daemon.health", "ready", values["metricsPort"]]
        assert service["healthcheck"]["test"] == check
        waits_for = {"namesrv": {"condition": "service_healthy"}}
        if name.endswith("-s"):  # a synchronous master is ready when it has a slave
            waits_for[name.removesuffix("-s")] = {"condition": "service_started"}
        expected = {other: wait for other, wait in waits_for.items() if other != name}
        assert service.get("depends_on", {}) == expected


def test_the_image_says_its_version_and_how_it_is_checked() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert f"ARG VERSION={RELEASE}\n" in text
    assert 'ENV TRIOMQ_HEALTH="broker 10911"' in text
    assert re.search(r"HEALTHCHECK .* CMD python -m triomq.daemon.health \$TRIOMQ_HEALTH", text)


def test_the_image_has_every_package() -> None:
    copied = set(re.findall(r"(?m)^COPY (\w+) \./\1$", (ROOT / "Dockerfile").read_text()))
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "sim"}
    assert copied == packages | {"bin", "conf", "src"}  # bin/build makes the wheel
