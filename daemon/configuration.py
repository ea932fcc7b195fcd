"""Load settings records from files, the command line and the environment.

Later layers win:

    0. defaults of the program
    1. system properties (-D in JAVA_OPT, JAVA_OPT_EXT) and environment variables, as defaults of their keys
    2. the TLS file that the property tls.config.file names, for keys that begin with "tls."
    3. the file given with -c: Java properties, or YAML when its name ends in .yml or .yaml
    4. options of the command line (-n) and other overrides of the program

Secrets may also be in variables of their own (secret_names.py), which no layer may contradict.

One task uses the layers while a daemon starts: it binds each settings record, then queries the keys of the file that no
record declares. Changes at run time are made elsewhere.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import structlog
from msgspec import Struct

from triomq.daemon.environment import Environment
from triomq.daemon.errors import StartError
from triomq.daemon.secret_names import SECRET_KEYS, variable_of
from triomq.protocol import java_properties
from triomq.protocol.java_properties import PropertiesError
from triomq.protocol.settings import SettingError, bind, declarations

log = structlog.get_logger("triomq.daemon.configuration")

_Record = TypeVar("_Record", bound=Struct)

_PROPERTY_KEYS: dict[str, tuple[str, ...]] = {
    "rocketmq.namesrv.addr": ("namesrvAddr",),
    "rocketmq.broker.diskSpaceWarningLevelRatio": ("diskSpaceWarningLevelRatio",),
    "rocketmq.broker.diskSpaceCleanForciblyRatio": ("diskSpaceCleanForciblyRatio",),
    "rocketmq.broker.rebalance.lockMaxLiveTime": ("rebalanceLockMaxLiveTime",),
    "com.rocketmq.remoting.frameMaxLength": ("frameMaxLength",),
    "com.rocketmq.remoting.socket.sndbuf.size": ("serverSocketSndBufSize", "clientSocketSndBufSize"),
    "com.rocketmq.remoting.socket.rcvbuf.size": ("serverSocketRcvBufSize", "clientSocketRcvBufSize"),
    "com.rocketmq.remoting.socket.backlog": ("serverSocketBacklog",),
    "com.rocketmq.remoting.clientAsyncSemaphoreValue": ("clientAsyncSemaphoreValue",),
    "com.rocketmq.remoting.clientOnewaySemaphoreValue": ("clientOnewaySemaphoreValue",),
    "com.rocketmq.remoting.client.worker.size": ("clientWorkerThreads",),
    "com.rocketmq.remoting.client.connect.timeout": ("connectTimeoutMillis",),
    "com.rocketmq.remoting.client.channel.maxIdleTimeSeconds": ("clientChannelMaxIdleTimeSeconds",),
    "com.rocketmq.remoting.client.closeSocketIfTimeout": ("clientCloseSocketIfTimeout",),
    "com.rocketmq.remoting.write.buffer.high.water.mark": ("writeBufferHighWaterMark",),
    "com.rocketmq.remoting.write.buffer.low.water.mark": ("writeBufferLowWaterMark",),
}
"""System properties that give settings their defaults (RocketMQ: NettySystemConfig, MixAll, DefaultMessageStore,
RebalanceLockManager, NettyDecoder). For some of them RocketMQ has no other key."""

_NOT_IN_HOSTS = re.compile(r"[,\s]")
_MULTI_PATH_SPLITTER = "rocketmq.broker.multiPathSplitter"
_MULTI_PATH_KEYS = ("storePathCommitLog", "storePathDLedgerCommitLog", "readOnlyCommitLogStorePaths")
_OTHER_PROPERTIES = frozenset(
    {
        # read elsewhere by these names
        "rocketmq.home.dir",
        "rocketmq.namesrv.domain",
        "rocketmq.namesrv.domain.subgroup",
        "rocketmq.serialize.type",
        "rocketmq.acl.plain.file",
        "tls.config.file",
        _MULTI_PATH_SPLITTER,
        # without effect in RocketMQ's daemons, too: the first is overwritten at the start, the others configure clients
        "rocketmq.remoting.version",
        "rocketmq.message.compressType",
        "rocketmq.message.compressLevel",
        "com.rocketmq.sendMessageWithVIPChannel",
        # tuning of Netty
        "com.rocketmq.remoting.nettyPooledByteBufAllocatorEnable",
    }
)
_CLIENT_PROPERTIES = "rocketmq.client."
_OWN_PREFIXES = ("rocketmq.", "com.rocketmq.", "tls.")
"""Other system properties belong to the JVM or to libraries."""

_FILE_PROPERTIES = {
    "rmqAddressServerDomain": "rocketmq.namesrv.domain",
    "rmqAddressServerSubGroup": "rocketmq.namesrv.domain.subgroup",
}
"""Keys of a file that stand for system properties."""

_TLS_FILE = "/etc/rocketmq/tls.properties"
_TLS_ONLY_PROPERTIES = frozenset({"tls.server.mode", "tls.enable"})


class ConfigurationLayers:
    """The merged layers: key -> text, and the source of each text.

    file: the -c file, or None. file_values: its entries as written, including unknown keys, which listings keep.
    defaults: those of the program, which override those of the records.
    Code that reads `values` directly declares its keys with `expect`.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.file: Path | None = None
        self.defaults: Mapping[str, str] = {}
        self.file_values: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._sources: dict[str, str] = {}
        self._known: set[str] = set()
        self._retired: dict[str, str] = {}
        self._expected = {*_FILE_PROPERTIES, *_FILE_PROPERTIES.values(), "rocketmq.serialize.type"}

    def add(self, values: Mapping[str, str], source: str) -> None:
        """Add `values` as the topmost layer."""
        for key, text in values.items():
            self._values[key] = text
            self._sources[key] = source

    def bind(self, cls: type[_Record]) -> _Record:
        """Return the settings record of class `cls`. Raises SettingError naming file or option, key and reason."""
        for declaration in declarations(cls):
            self._known.add(declaration.key)
            if declaration.retired:
                self._retired[declaration.key] = declaration.meaning
        try:
            record, _ = bind(cls, self._values, source="configuration")
        except SettingError as error:
            raise SettingError(self._sources[error.key], error.key, error.reason) from None
        return record

    def read(self, cls: type[_Record]) -> _Record:
        """Return the settings record of class `cls`, whose keys listings show as they are in the file. Raises
        SettingError like `bind`."""
        known = set(self._known)
        record = self.bind(cls)
        self._known = known
        self.expect(cls)
        return record

    def expect(self, cls: type) -> None:
        """Accept the keys of `cls`, although no listed record declares them, so that they cause no warnings."""
        self._expected.update(declaration.key for declaration in declarations(cls))

    @property
    def values(self) -> Mapping[str, str]:
        """The merged layers, including keys that no record declares, such as system properties."""
        return self._values

    def get(self, key: str) -> str | None:
        """Return the text of one key, or None."""
        return self._values.get(key)

    def source(self, key: str) -> str:
        """Return where the text of `key` came from: a file's name, a variable, an option, or "default"."""
        return self._sources.get(key, "default")

    def unknown_values(self) -> dict[str, str]:
        """Return the entries of the file that no bound record declares; listings show them."""
        return {key: text for key, text in self.file_values.items() if key not in self._known}

    def unknown_keys(self) -> dict[str, str | None]:
        """Return the keys of the file without effect -> the most similar declared key, or None."""
        unknown = [key for key in self.unknown_values() if key not in self._expected]
        return similar_names(unknown, self._known | self._expected)

    def retired_keys(self) -> dict[str, str]:
        """Return the keys of the layers that have had no effect since this version -> what holds instead."""
        return {key: meaning for key, meaning in self._retired.items() if key in self._values}

    def unknown_properties(self) -> dict[str, str | None]:
        """Return RocketMQ's system properties without effect -> the most similar known property, or None."""
        known = _OTHER_PROPERTIES | _PROPERTY_KEYS.keys() | self._known | self._expected
        unknown = [
            name
            for name in self.environment.properties
            if name.startswith(_OWN_PREFIXES) and name not in known and not name.startswith(_CLIENT_PROPERTIES)
        ]
        return similar_names(unknown, {name for name in known if name.startswith(_OWN_PREFIXES)})


def load_configuration(
    environment: Environment,
    *,
    file: Path | None = None,
    overrides: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> ConfigurationLayers:
    """Return all layers. Raises StartError for a file that cannot be read or parsed."""
    configuration = ConfigurationLayers(environment)
    configuration.defaults = defaults or {}
    configuration.add(configuration.defaults, "default")
    for name, value in environment.properties.items():
        source = f"{environment.sources[name]} -D{name}"
        configuration.add({name: value}, source)
        configuration.add(dict.fromkeys(_PROPERTY_KEYS.get(name, ()), value), source)
    _add_variables(configuration)
    _add_tls_file(configuration)
    if file is not None:
        configuration.file = file
        configuration.file_values = read_file(file)
        configuration.add(configuration.file_values, str(file))
        for key, name in _FILE_PROPERTIES.items():
            if key in configuration.file_values:
                configuration.add({name: configuration.file_values[key]}, str(file))
    configuration.add(overrides or {}, "command line")
    _use_path_splitter(configuration)
    _add_secrets(configuration)
    return configuration


def read_file(path: Path) -> dict[str, str]:
    """Return key -> text of a properties or YAML file. Raises StartError naming the file, and the line if known."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StartError(f"cannot read the configuration file {path}: {error.strerror}") from None
    if path.suffix.lower() in (".yml", ".yaml"):
        return _parse_yaml(path, data)
    try:
        return java_properties.parse(data.decode("latin-1"))
    except PropertiesError as error:
        raise StartError(f"{path}: {error}") from None


def write_text(path: Path, values: Mapping[str, str]) -> bytes:
    """Return the content of a configuration file that `read_file` reads as `values`."""
    if path.suffix.lower() in (".yml", ".yaml"):
        import json

        return "".join(f"{json.dumps(key)}: {json.dumps(text)}\n" for key, text in values.items()).encode()
    return java_properties.format(values).encode("ascii")


def warn_of_keys_without_effect(configuration: ConfigurationLayers) -> None:
    """Log a warning for each key of the file and each of RocketMQ's system properties that has no effect."""
    for key, meaning in configuration.retired_keys().items():
        log.warning("configuration key withdrawn; remove it", source=configuration.source(key), key=key, reason=meaning)
    for key, guess in configuration.unknown_keys().items():
        hint = {"did_you_mean": guess} if guess else {}
        log.warning("unknown configuration key ignored", file=str(configuration.file), key=key, **hint)
    for name, guess in configuration.unknown_properties().items():
        hint = {"did_you_mean": guess} if guess else {}
        source = configuration.environment.sources[name]
        log.warning("unknown system property ignored", source=source, property=name, **hint)


def check_namesrv_addresses(text: str, source: str) -> None:
    """Raise StartError unless `text` is "host:port;host:port", as RocketMQ's start does."""
    for address in text.split(";"):
        host, _, port = address.strip().rpartition(":")
        is_port = port.isascii() and port.isdigit() and int(port) <= 65535
        if not host or not is_port or _NOT_IN_HOSTS.search(host):
            hint = "; addresses are separated by ';'" if _NOT_IN_HOSTS.search(text.strip()) else ""
            raise StartError(
                f"{source}: the Name Server Address[{text}] illegal, please set it as follows, "
                f'"127.0.0.1:9876;192.168.0.1:9876"{hint}'
            )


def similar_names(unknown: Collection[str], known: Collection[str]) -> dict[str, str | None]:
    """Return unknown name -> the most similar known name, or None."""
    if not unknown:
        return {}
    from difflib import get_close_matches

    lowered = {name.lower(): name for name in known}
    found = {name: get_close_matches(name.lower(), lowered, 1, 0.8) for name in unknown}
    return {name: lowered[matches[0]] if matches else None for name, matches in found.items()}


def _use_path_splitter(configuration: ConfigurationLayers) -> None:
    """Split lists of paths at the separator that the system property names, if any, instead of at commas."""
    splitter = configuration.environment.properties.get(_MULTI_PATH_SPLITTER, ",")
    if splitter in ("", ","):
        return
    for key in _MULTI_PATH_KEYS:
        text = configuration.get(key)
        if text is None:
            continue
        if "," in text:
            raise StartError(f"{configuration.source(key)}: {key}: a path must not contain a comma: {text}")
        configuration.add({key: text.replace(splitter, ",")}, configuration.source(key))


def _add_variables(configuration: ConfigurationLayers) -> None:
    environment = configuration.environment
    configuration.add({"rocketmqHome": str(environment.rocketmq_home)}, "ROCKETMQ_HOME")
    for variable, key, name in (
        ("NAMESRV_ADDR", "namesrvAddr", "rocketmq.namesrv.addr"),
        ("ROCKETMQ_SERIALIZE_TYPE", "rocketmq.serialize.type", "rocketmq.serialize.type"),
    ):
        value = environment.variables.get(variable)
        if value and name not in environment.properties:
            configuration.add({key: value}, variable)


def _add_secrets(configuration: ConfigurationLayers) -> None:
    """Add the secrets that variables hold. A secret with two origins is an error, because the wrong one might count."""
    for key in SECRET_KEYS:
        variable = variable_of(key)
        text = configuration.environment.variables.get(variable)
        origins = [
            f"{name} ({configuration.source(name)})" for name in (key, f"{key}File") if configuration.get(name)
        ] + ([f"the variable {variable}"] if text else [])
        if len(origins) > 1:
            raise StartError(f"{' and '.join(origins)} are both set: remove one")
        if text:
            configuration.add({key: text}, variable)


def _add_tls_file(configuration: ConfigurationLayers) -> None:
    stated = configuration.get("tls.config.file")
    path = Path(stated or _TLS_FILE)
    if not path.is_file():
        if stated:
            raise StartError(f"{configuration.source('tls.config.file')}: there is no file {path}")
        return
    values = read_file(path)
    configuration.add(
        {key: text for key, text in values.items() if key.startswith("tls.") and key not in _TLS_ONLY_PROPERTIES},
        str(path),
    )


def _parse_yaml(path: Path, data: bytes) -> dict[str, str]:
    import yaml
    from yaml.parser import ParserError
    from yaml.scanner import ScannerError

    try:
        # BaseLoader leaves every value as it is written: 04 stays "04", no stays "no".
        document: Any = yaml.load(data, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # The error's own text would quote the line, which may hold a password.
        place = getattr(error, "problem_mark", None)
        line = f", line {place.line + 1}" if place is not None else ""
        problem = f": {error.problem}" if isinstance(error, ScannerError | ParserError) else ""
        raise StartError(f"{path}{line}: not YAML{problem}") from None
    if document is None or document == "":
        return {}
    if not isinstance(document, dict):
        raise StartError(f"{path}: a mapping of keys to values is expected at the top")
    for key, value in document.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise StartError(f"{path}: {key}: a plain value is expected, not a {type(value).__name__}")
    return document
