"""The default allowances of each kind, as the settings have them."""

from __future__ import annotations

from triomq.broker.config import BrokerSettings
from triomq.broker.settings.allowance import ACCOUNT, ADDRESS, GROUP, Allowance, parse
from triomq.protocol.settings import SettingError


def default_allowances(broker: BrokerSettings, source: str = "configuration") -> dict[str, Allowance]:
    """Return kind -> allowance. Raises SettingError naming the key."""
    found: dict[str, Allowance] = {}
    for kind, key, text in (
        (ACCOUNT, "quotaPerAccount", broker.quota_per_account),
        (ADDRESS, "quotaPerAddress", broker.quota_per_address),
        (GROUP, "quotaPerGroup", broker.quota_per_group),
    ):
        try:
            found[kind] = parse(text, kind)
        except ValueError as error:
            raise SettingError(source, key, str(error)) from None
    return found
