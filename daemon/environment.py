"""The environment: variables, and the Java system properties that start scripts put into them.

RocketMQ's scripts pass `JAVA_OPT` and `JAVA_OPT_EXT` to the JVM. Their `-Dname=value` parts are RocketMQ's system
properties and take effect here, too; the JVM's own options (-Xmx8g, -XX:...) are ignored.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

_PROJECT_DIRECTORY = Path(__file__).resolve().parent.parent


class Environment(Struct, frozen=True):
    """`properties`: Java system properties by name. `sources`: the variable that each came from, for messages."""

    variables: Mapping[str, str]
    properties: Mapping[str, str]
    sources: Mapping[str, str]

    @property
    def user_home(self) -> Path:
        """Java's user.home: property, else HOME, else the home of the account, else the working directory."""
        stated = self.properties.get("user.home") or self.variables.get("HOME")
        if stated:
            return Path(stated)
        try:
            return Path("~").expanduser()
        except RuntimeError:
            return Path.cwd()

    @property
    def rocketmq_home(self) -> Path:
        """The installation directory: property rocketmq.home.dir, else ROCKETMQ_HOME, else the one this program lies
        in when it has a conf/ directory, else where the process runs. (RocketMQ refuses to start without the first
        two.)"""
        stated = self.properties.get("rocketmq.home.dir") or self.variables.get("ROCKETMQ_HOME")
        if stated:
            return Path(stated)
        return _PROJECT_DIRECTORY if (_PROJECT_DIRECTORY / "conf").is_dir() else Path.cwd()

    @property
    def run_directory(self) -> Path:
        """The directory of the pid files that mqshutdown reads."""
        return self.user_home / ".triomq" / "run"


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Read a mapping such as os.environ. The last of equal properties wins, as in the JVM."""
    properties: dict[str, str] = {}
    sources: dict[str, str] = {}
    for variable in ("JAVA_OPT", "JAVA_OPT_EXT"):
        for option in _words(variables.get(variable, "")):
            if not option.startswith("-D"):
                continue
            name, _, value = option[2:].partition("=")
            if name:
                properties[name] = value
                sources[name] = variable
    return Environment(dict(variables), properties, sources)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        # An unbalanced quote: split at white space.
        return text.split()
