"""The dashboard behind a proxy, and beside other programs of one host."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from site_visit import People, Person, Visit, header, text_of

from triomq.dashboard.checks import is_own_change
from triomq.dashboard.cookies import cookies_of
from triomq.dashboard.exposure import objection
from triomq.dashboard.proxies import Proxies
from triomq.monitoring.http_server import Request
from triomq.remoting.config import ServerSettings

LOGIN = urlencode({"name": "admin", "secret": "adminadmin", "next": "/topics"})
ADMIN = People({"admin": Person("admin", is_admin=True)})
BROWSER = {"host": "mq.example.com", "origin": "https://mq.example.com", "sec_fetch_site": "same-origin"}


async def test_behind_a_proxy_that_ends_tls_one_can_log_in_and_a_foreign_site_cannot() -> None:
    visit = Visit(ADMIN)
    assert (await visit.post("/login", LOGIN, **BROWSER)).status == 303
    foreign = {**BROWSER, "origin": "https://evil.example"}
    assert (await visit.post("/login", LOGIN, **foreign)).status == 403
    assert (await visit.post("/login", LOGIN, **foreign, x_forwarded_proto="https")).status == 403
    for site in ("cross-site", "same-site"):
        assert (await visit.post("/login", LOGIN, **{**BROWSER, "sec_fetch_site": site})).status == 403


@pytest.mark.parametrize(
    ("origin", "host", "site", "scheme", "is_own"),
    [
        ("https://mq.example.com", "mq.example.com", "same-origin", "http", True),
        ("https://mq.example.com", "mq.example.com:443", "same-origin", "http", True),
        ("https://mq.example.com:8443", "mq.example.com", "same-origin", "http", False),
        ("https://mq.example.com", "mq.example.com", None, "http", False),
        ("https://mq.example.com", "mq.example.com", None, "https", True),
        ("https://mq.example.com", "mq.example.com", "none", "http", False),
        ("null", "mq.example.com", "same-origin", "http", False),
        ("https://mq.example.com.evil", "mq.example.com", "same-origin", "http", False),
    ],
)
def test_which_changes_are_those_of_own_pages(
    origin: str, host: str, site: str | None, scheme: str, is_own: bool
) -> None:
    headers = {"origin": origin, "host": host} | ({"sec-fetch-site": site} if site is not None else {})
    assert is_own_change(headers, scheme) == is_own


@pytest.mark.parametrize(
    ("proxies", "address", "forwarded", "client"),
    [
        ("", "127.0.0.1", "203.0.113.9", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("127.0.0.1", "10.0.0.1", "203.0.113.9", "10.0.0.1"),
        ("127.0.0.1, 10.0.0.0/8", "127.0.0.1", "1.1.1.1, 203.0.113.9, 10.1.2.3", "203.0.113.9"),
        ("127.0.0.1", "127.0.0.1", "203.0.113.9, <script>", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1", "", "127.0.0.1"),
        ("10.0.0.0/8", "10.0.0.1", "10.0.0.2", "10.0.0.2"),
        ("::1", "::1", "[2001:db8::7]", "2001:db8::7"),
        ("10.0.0.0/8", "::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),
    ],
)
def test_the_client_is_the_last_that_is_no_trusted_proxy(
    proxies: str, address: str, forwarded: str, client: str
) -> None:
    request = Request("/", headers={"x-forwarded-for": forwarded}, address=address)
    assert Proxies(proxies, "", "http").original(request).address == client


def test_the_scheme_is_that_which_a_trusted_proxy_names() -> None:
    proxies = Proxies("10.0.0.1", "", "http")
    assert proxies.scheme("10.0.0.1", {"x-forwarded-proto": "https"}) == "https"
    assert proxies.scheme("10.0.0.1", {"x-forwarded-proto": "gopher"}) == "http"
    assert proxies.scheme("10.0.0.1", {}) == "http"
    assert proxies.scheme("10.0.0.2", {"x-forwarded-proto": "https"}) == "http"


async def test_a_cookie_is_for_https_only_where_the_proxy_speaks_it() -> None:
    visit = Visit(ADMIN, proxies="10.0.0.0/8")
    await visit.post("/login", LOGIN, **BROWSER, x_forwarded_proto="https")
    assert "; Secure" in visit.last_cookie


async def test_wrong_logins_count_for_the_client_behind_a_trusted_proxy() -> None:
    visit = Visit(ADMIN, proxies="10.0.0.1")
    wrong = urlencode({"name": "admin", "secret": "wrong"})
    for _ in range(5):
        assert (await visit.post("/login", wrong, x_forwarded_for="203.0.113.9")).status == 403
    assert (await visit.post("/login", LOGIN, x_forwarded_for="203.0.113.9")).status == 429
    assert (await visit.post("/login", LOGIN, x_forwarded_for="203.0.113.10")).status == 303


@pytest.mark.parametrize("is_stripped", [False, True])
async def test_below_a_path_each_link_and_cookie_begins_with_it(is_stripped: bool) -> None:
    visit = Visit(ADMIN, path="/mq/")
    root = "" if is_stripped else "/mq"
    assert header(await visit.get(f"{root}/"), "Location") == "/mq/login?next=/"
    response = await visit.post(f"{root}/login", LOGIN)
    assert (response.status, header(response, "Location")) == (303, "/mq/topics")
    assert "; Path=/mq/" in visit.last_cookie
    for path in ("/", "/nothing"):
        page = text_of(await visit.get(root + path))
        links = re.findall(r'(?:href|src|action)="([^"?#][^"]*)"', page)
        assert len(links) > 5
        assert [link for link in links if not link.startswith("/mq/")] == []
    assert (await visit.get(f"{root}/static/style.css")).status == 200
    assert (await visit.get("/mqx/")).status == 404


def test_cookies_of_other_programs_hide_none_of_ours() -> None:
    cookie = '[x]={"a": "b, c"}; triomq_80=token; =; broken; triomq_80=other; s="quoted"'
    found = cookies_of({"cookie": cookie})
    assert (found["triomq_80"], found["s"]) == ("token", "quoted")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"dashboard_path": "mq"}, "dashboardPath: 'mq' is no path"),
        ({"dashboard_path": "/a/../b"}, "dashboardPath: "),
        ({"dashboard_path": '/"onload='}, "dashboardPath: "),
        ({"dashboard_proxies": "proxy.example"}, "dashboardProxies: 'proxy.example' does not appear to be"),
        ({"dashboard_path": "/mq/", "dashboard_proxies": "10.0.0.0/8, ::1"}, None),
    ],
)
def test_what_cannot_be_is_refused_at_the_start(settings: dict[str, str], text: str | None) -> None:
    found = objection(ServerSettings(**settings), has_login=False)  # type: ignore[arg-type]
    assert found is None if text is None else (found or "").startswith(text)
