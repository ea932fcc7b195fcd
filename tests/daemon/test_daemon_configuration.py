from pathlib import Path

import pytest
from structlog.testing import capture_logs

from triomq.daemon.configuration import (
    check_namesrv_addresses,
    load_configuration,
    read_file,
    warn_of_keys_without_effect,
)
from triomq.daemon.environment import read_environment
from triomq.daemon.errors import ExitCode, StartError
from triomq.protocol.settings import SettingError, SettingsRecord, retired_setting, setting


class ExampleBroker(SettingsRecord, frozen=True, kw_only=True):
    rocketmq_home: str = setting("rocketmqHome", "", meaning="installation")
    namesrv_addr: str | None = setting("namesrvAddr", None, meaning="NameServers")
    broker_id: int = setting("brokerId", 0, meaning="0 master")


class ExampleServer(SettingsRecord, frozen=True, kw_only=True):
    port: int = setting("listenPort", 8888, meaning="port")
    send_buffer_bytes: int = setting("serverSocketSndBufSize", 0, meaning="buffer")


class ExampleTls(SettingsRecord, frozen=True, kw_only=True):
    mode: str = setting("tls.server.mode", "permissive", meaning="mode")
    key_path: str | None = setting("tls.server.keyPath", None, meaning="key")


def test_java_options_become_properties() -> None:
    environment = read_environment(
        {
            "JAVA_OPT": "-server -Xms8g -Duser.home=/one '-Da=b c' -XX:+UseG1GC",
            "JAVA_OPT_EXT": "-Duser.home=/two -Dflag",
            "HOME": "/three",
        }
    )
    assert environment.properties == {"user.home": "/two", "a": "b c", "flag": ""}
    assert environment.user_home == Path("/two")
    assert environment.sources["user.home"] == "JAVA_OPT_EXT"


def test_an_unbalanced_quote_in_java_options_is_survived() -> None:
    assert read_environment({"JAVA_OPT": "-Da=1 -Db='x"}).properties == {"a": "1", "b": "'x"}


def test_homes() -> None:
    assert read_environment({"HOME": "/h"}).user_home == Path("/h")
    assert read_environment({"HOME": ""}).user_home.is_absolute()
    assert read_environment({"ROCKETMQ_HOME": "/opt/rmq"}).rocketmq_home == Path("/opt/rmq")
    assert read_environment(
        {"ROCKETMQ_HOME": "/opt/rmq", "JAVA_OPT": "-Drocketmq.home.dir=/other"}
    ).rocketmq_home == Path("/other")
    assert read_environment({}).rocketmq_home.is_dir()


def test_later_layers_win(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("namesrvAddr=file:9876\nbrokerId=1\nlistenPort = 10911\n")
    variables = {
        "NAMESRV_ADDR": "variable:9876",
        "ROCKETMQ_HOME": "/opt/rmq",
        "JAVA_OPT": "-Dcom.rocketmq.remoting.socket.sndbuf.size=4096",
    }
    environment = read_environment(variables)
    assert load_configuration(environment).bind(ExampleBroker) == ExampleBroker(
        rocketmq_home="/opt/rmq", namesrv_addr="variable:9876", broker_id=0
    )
    loaded = load_configuration(environment, file=file)
    assert loaded.bind(ExampleBroker) == ExampleBroker(rocketmq_home="/opt/rmq", namesrv_addr="file:9876", broker_id=1)
    assert loaded.bind(ExampleServer) == ExampleServer(port=10911, send_buffer_bytes=4096)
    loaded = load_configuration(environment, file=file, overrides={"namesrvAddr": "option:9876"})
    assert loaded.bind(ExampleBroker).namesrv_addr == "option:9876"
    assert loaded.source("namesrvAddr") == "command line"


def test_a_property_wins_over_the_variable() -> None:
    environment = read_environment({"NAMESRV_ADDR": "v:9876", "JAVA_OPT": "-Drocketmq.namesrv.addr=property:9876"})
    assert load_configuration(environment).bind(ExampleBroker).namesrv_addr == "property:9876"


def test_a_bad_value_names_file_key_and_reason(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerId=first\n")
    loaded = load_configuration(read_environment({}), file=file)
    with pytest.raises(SettingError, match=rf"^{file}: brokerId: 'first' is not a whole number$"):
        loaded.bind(ExampleBroker)


class ExampleStore(SettingsRecord, frozen=True, kw_only=True):
    warning_ratio: float = setting("diskSpaceWarningLevelRatio", 0.9, meaning="ratio", minimum=0.01, maximum=1)
    forcible_ratio: float = setting("diskSpaceCleanForciblyRatio", 0.85, meaning="ratio")
    max_frame_bytes: int = setting("frameMaxLength", 16, meaning="frame")
    lock_ms: int = setting("rebalanceLockMaxLiveTime", 60, meaning="lock")
    logs: str | None = setting("storePathCommitLog", None, meaning="paths")


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("rocketmq.broker.diskSpaceWarningLevelRatio=0.95", "warning_ratio", 0.95),
        ("rocketmq.broker.diskSpaceCleanForciblyRatio=0.7", "forcible_ratio", 0.7),
        ("com.rocketmq.remoting.frameMaxLength=33554432", "max_frame_bytes", 33554432),
        ("rocketmq.broker.rebalance.lockMaxLiveTime=90000", "lock_ms", 90000),
    ],
)
def test_settings_that_only_a_system_property_sets_in_rocketmq(option: str, field: str, value: object) -> None:
    loaded = load_configuration(read_environment({"JAVA_OPT": f"-D{option}"}))
    assert getattr(loaded.bind(ExampleStore), field) == value
    assert loaded.unknown_properties() == {}


def test_a_bad_ratio_of_a_property_is_refused() -> None:
    environment = read_environment({"JAVA_OPT": "-Drocketmq.broker.diskSpaceWarningLevelRatio=90"})
    with pytest.raises(SettingError, match=r"^JAVA_OPT -Drocketmq\S+Ratio: diskSpaceWarningLevelRatio: 90 is more"):
        load_configuration(environment).bind(ExampleStore)


def test_lists_of_paths_with_another_separator(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("storePathCommitLog=/a;/b\n")
    environment = read_environment({"JAVA_OPT": "'-Drocketmq.broker.multiPathSplitter=;'"})
    assert load_configuration(environment, file=file).bind(ExampleStore).logs == "/a,/b"
    assert load_configuration(read_environment({}), file=file).bind(ExampleStore).logs == "/a;/b"
    file.write_text("storePathCommitLog=/a,1;/b\n")
    with pytest.raises(StartError, match=r"storePathCommitLog: a path must not contain a comma: /a,1;/b"):
        load_configuration(environment, file=file)


def test_unknown_system_properties_are_reported_with_the_likely_meaning() -> None:
    known = (
        "-Drocketmq.home.dir=/x -Drocketmq.namesrv.domain=x -Drocketmq.client.logUseSlf4j=true -Duser.home=/h "
        "-Dio.netty.x=1 -Drocketmq.remoting.version=1 -Dtls.server.mode=disabled -Drocketmq.acl.plain.file=x "
    )
    unknown = "-Drocketmq.broker.diskSpaceWarningRatio=1 -Dtls.server.modus=x -Drocketmq.nothing.like.it=1"
    loaded = load_configuration(read_environment({"JAVA_OPT": known, "JAVA_OPT_EXT": unknown}))
    loaded.expect(ExampleTls)
    assert loaded.unknown_properties() == {
        "rocketmq.broker.diskSpaceWarningRatio": "rocketmq.broker.diskSpaceWarningLevelRatio",
        "tls.server.modus": "tls.server.mode",
        "rocketmq.nothing.like.it": None,
    }
    with capture_logs() as logs:
        warn_of_keys_without_effect(loaded)
    assert [line["property"] for line in logs] == list(loaded.unknown_properties())
    assert logs[0]["source"] == "JAVA_OPT_EXT"


def test_a_bad_property_names_its_variable() -> None:
    environment = read_environment({"JAVA_OPT_EXT": "-Dcom.rocketmq.remoting.socket.sndbuf.size=big"})
    with pytest.raises(SettingError, match=r"^JAVA_OPT_EXT -Dcom\S+sndbuf\.size: serverSocketSndBuf"):
        load_configuration(environment).bind(ExampleServer)


def test_unknown_keys_of_the_file_with_the_likely_meaning(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerID=1\nlistenport=1\nsomethingElse=1\nbrokerId=2\nrmqAddressServerDomain=ns.example\n")
    loaded = load_configuration(read_environment({}), file=file)
    loaded.bind(ExampleBroker)
    loaded.bind(ExampleServer)
    assert loaded.unknown_keys() == {"brokerID": "brokerId", "listenport": "listenPort", "somethingElse": None}
    assert loaded.get("rocketmq.namesrv.domain") == "ns.example"


class ExampleRetired(SettingsRecord, frozen=True, kw_only=True):
    ceiling: str = retired_setting("ceiling", instead="the memory of all tables bounds it")
    other: str = retired_setting("other", instead="nothing")


def test_a_retired_key_of_the_file_costs_one_warning_that_says_what_holds_instead(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("ceiling=whatever\n")
    loaded = load_configuration(read_environment({}), file=file)
    assert loaded.bind(ExampleRetired) == ExampleRetired()
    with capture_logs() as logs:
        warn_of_keys_without_effect(loaded)
    (line,) = logs
    assert (line["log_level"], line["key"], line["source"]) == ("warning", "ceiling", str(file))
    assert line["reason"] == "no effect any more: the memory of all tables bounds it"
    assert loaded.unknown_values() == {}


def test_keys_that_parts_read_by_themselves_are_listed_without_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("tls.server.keyPath=/k\ntls.server.keypath=/k\nrocketmq.serialize.type=JSON\n")
    loaded = load_configuration(read_environment({}), file=file)
    loaded.expect(ExampleTls)
    assert loaded.unknown_keys() == {"tls.server.keypath": "tls.server.keyPath"}
    assert loaded.unknown_values() == loaded.file_values


def test_keys_that_are_read_apart_are_listed_without_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerId=2\nlistenPort=1\n")
    loaded = load_configuration(read_environment({}), file=file)
    assert loaded.read(ExampleBroker).broker_id == 2
    assert loaded.unknown_keys() == {"listenPort": None}
    assert loaded.unknown_values() == loaded.file_values


def test_the_tls_file_wins_over_properties_except_the_mode(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.keyPath=/file.key\ntls.server.mode=enforcing\nother=1\n")
    environment = read_environment(
        {"JAVA_OPT": f"-Dtls.config.file={file} -Dtls.server.keyPath=/p.key -Dtls.server.mode=disabled"}
    )
    assert load_configuration(environment).bind(ExampleTls) == ExampleTls(mode="disabled", key_path="/file.key")
    missing = read_environment({"JAVA_OPT": f"-Dtls.config.file={tmp_path}/none"})
    with pytest.raises(StartError, match="there is no file"):
        load_configuration(missing)


def test_yaml_is_read_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text('deleteWhen: 04\ntraceOn: no\n"brokerId": 1 # comment\nname: ä\n')
    assert read_file(file) == {"deleteWhen": "04", "traceOn": "no", "brokerId": "1", "name": "ä"}
    file.write_text("")
    assert read_file(file) == {}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yml", "a: [1, 2]\n", "a.yml: a: a plain value is expected, not a list"),
        ("a.yml", "- a\n", "a.yml: a mapping of keys to values is expected"),
        ("a.yml", "a: 'hush\n", "a.yml, line 2: not YAML: found unexpected end of stream"),
        ("a.yml", "a: *hush\n", "a.yml, line 1: not YAML"),
        ("a.yml", "a: hush: hush\n", "a.yml, line 1: not YAML: mapping values"),
        ("a.yml", "a: \x01hush\n", "a.yml: not YAML"),
        ("a.conf", "ok=1\na=\\uhush\n", "a.conf: line 2: "),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(StartError, match=message) as caught:
        read_file(tmp_path / name)
    assert "hush" not in str(caught.value), "a line may hold a password"
    assert caught.value.exit_code == ExitCode.REFUSED


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"cannot read the configuration file .*none: No such file"):
        read_file(tmp_path / "none")


def test_namesrv_addresses() -> None:
    check_namesrv_addresses("127.0.0.1:9876; ns.example:9877", "-n")
    check_namesrv_addresses("[::1]:9876", "-n")
    for text in ("localhost", "a:9876;b", "a:x", ":9876", "a:70000", ""):
        with pytest.raises(StartError, match=r'illegal, please set it as follows, "127.0.0.1:9876;192.168.0.1:9876"$'):
            check_namesrv_addresses(text, "-n")


@pytest.mark.parametrize("text", ["a:9876,b:9876", "a:9876 b:9876", "a,b:9876", "a:1, b:2"])
def test_namesrv_addresses_with_another_separator(text: str) -> None:
    with pytest.raises(StartError, match=r"addresses are separated by ';'$"):
        check_namesrv_addresses(text, "-n")
