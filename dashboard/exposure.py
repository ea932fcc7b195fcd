"""Whether a dashboard may open as it is set: on a loopback address, or else with a login and TLS, or with an explicit
word."""

from __future__ import annotations

from triomq.dashboard.proxies import checked_path, networks_of
from triomq.monitoring.host_names import is_loopback
from triomq.remoting.config import ServerSettings


def objection(settings: ServerSettings, *, has_login: bool) -> str | None:
    """Return why the dashboard must not listen as it is set, and what to do; None if it may."""
    for key, check, text in (
        ("dashboardPath", checked_path, settings.dashboard_path),
        ("dashboardProxies", networks_of, settings.dashboard_proxies),
    ):
        try:
            check(text)
        except ValueError as error:
            return f"{key}: {error}"
    if is_loopback(settings.dashboard_address) or settings.dashboard_insecure:
        return None
    missing = [] if has_login else ["a login (aclEnable=true)"]
    if not settings.dashboard_tls:
        missing.append("TLS (dashboardTls=true)")
    if not missing:
        return None
    return (
        f"dashboardAddress={settings.dashboard_address or '(all)'} is open to other machines without "
        f"{' and '.join(missing)}: set these, or dashboardAddress=127.0.0.1, or dashboardInsecure=true"
    )
