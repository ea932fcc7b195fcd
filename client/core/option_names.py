"""Which option was meant by a keyword argument that a class or function does not have."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches

from triomq.client.core.config import ClientOptions
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import ConfigurationError
from triomq.client.core.outgoing import SendRules

# What clients of RocketMQ and of other brokers call it, without underscores and in lower case: the first name that is
# an option here is suggested.
_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("bootstrapservers", "brokers", "broker", "servers", "server", "hosts", "host", "url", "urls", "address"),
            *("endpoint", "endpoints", "namesrvaddr", "namesrv", "namesrvs", "nameserver", "nameservers"),
            *("nameserveraddress", "nameserveraddr", "addresses", "brokerurl", "bootstrap"),
        ),
        ("name_server",),
    ),
    **dict.fromkeys(
        ("timeout", "timeoutms", "sendtimeout", "sendtimeoutms", "sendmsgtimeout", "sendmsgtimeoutmillis"),
        ("send_timeout_seconds", "timeout_seconds", "request_timeout_seconds"),
    ),
    **dict.fromkeys(("requesttimeout", "requesttimeoutms", "apitimeout"), ("request_timeout_seconds",)),
    **dict.fromkeys(("maxretries", "retry", "retrytimes", "retrytimeswhensendfailed"), ("retries",)),
    **dict.fromkeys(("valueserializer", "valuedeserializer", "deserializer"), ("serializer",)),
    **dict.fromkeys(("clientid", "instance"), ("instance_name",)),
    **dict.fromkeys(("acl", "auth", "accesskey", "secretkey", "username", "password"), ("credentials",)),
    **dict.fromkeys(("ssl", "sslcontext", "usetls", "tlsenable", "securityprotocol"), ("tls",)),
    **dict.fromkeys(("messagemodel", "broadcast", "broadcasting"), ("model",)),
    **dict.fromkeys(("consumefromwhere", "autooffsetreset", "fromwhere"), ("consume_from",)),
    **dict.fromkeys(("orderly", "fifo"), ("ordered",)),
}

_RULES = {cls.__name__: cls for cls in (ConsumeRules, SendRules)}


def check_option_names(owner: str, given: Mapping[str, object], known: Sequence[str], rules: str = "") -> None:
    """Raise ConfigurationError for a name of `given` that is not `known`. `rules`: the class whose fields go into the
    option of that name."""
    for name in given:
        if name in known:
            continue
        if rules and name in (field.name for field in fields(_RULES[rules])):
            hint = f"it is one of the rules: rules={rules}({name}=...)"
        else:
            meant = _meant(name, known)
            hint = f"did you mean {meant!r}?" if meant else f"it has {', '.join(known)}"
        raise ConfigurationError(f"{owner} has no option {name!r}: {hint}")


def check_options_of(owner: object, options: Mapping[str, object]) -> None:
    """Raise ConfigurationError if the constructor of `owner`, an object of the client, has received an option that it
    does not have. `options` are those it has no parameters for."""
    if all(name in ClientOptions.__annotations__ for name in options):
        return
    # An application's own class may take whatever it passes on.
    cls = next(each for each in type(owner).__mro__ if each.__module__.startswith("triomq."))
    parameters = inspect.signature(cls).parameters.values()
    named = {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY}
    rules = next((name for name in _RULES if "rules" in named and name in str(named["rules"].annotation)), "")
    check_option_names(cls.__name__, options, (*named, *ClientOptions.__annotations__), rules)


def _meant(name: str, known: Sequence[str]) -> str | None:
    elsewhere = _ELSEWHERE.get(name.replace("_", "").lower(), ())
    near = get_close_matches(name.lower(), known, 1)
    return next((each for each in elsewhere if each in known), near[0] if near else None)
