"""Who sees which page, and what strangers try."""

from __future__ import annotations

import json
import re

import pytest
from site_visit import HOSTILE, People, Person, Visit, header, text_of

from triomq.dashboard import sessions
from triomq.dashboard.checks import host_judge, is_own_change
from triomq.dashboard.cookies import cookies_of
from triomq.dashboard.exposure import objection
from triomq.dashboard.site import HEADERS, own_path
from triomq.remoting.config import ServerSettings

LOGIN = "name=alice&secret=alicealice&next=%2F"


def people() -> People:
    return People({"alice": Person("alice")})


async def test_without_accounts_pages_and_json_are_there_for_everybody() -> None:
    visit = Visit()
    page = await visit.get("/")
    assert (page.status, page.content_type) == (200, "text/html; charset=utf-8")
    data = await visit.get("/api/")
    assert data.content_type == "application/json"
    assert json.loads(text_of(data))["brokers"][0]["name"] == HOSTILE
    assert [(await visit.get(path)).status for path in ("/nothing", "/api/nothing", "/static/../site.py")] == [404] * 3
    assert (await visit.get("/static/style.css")).content_type == "text/css; charset=utf-8"


@pytest.mark.parametrize("path", ["/", "/?name=gone", "/?lang=zh"])
async def test_foreign_text_stays_text(path: str) -> None:
    html = text_of(await Visit().get(path))
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&#34;" in html


async def test_no_page_has_a_script_or_style_of_its_own() -> None:
    """The policy of the pages forbids them, so what has one does not work."""
    html = text_of(await Visit().get("/"))
    assert re.findall(r"<script(?! src=\"/static/)|<style| style=| on\w+=|javascript:|https?:", html) == []
    policy = dict(HEADERS)["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


async def test_with_accounts_nobody_sees_anything_before_the_login() -> None:
    visit = Visit(people())
    page = await visit.get("/?q=1")
    assert (page.status, header(page, "Location"), page.body) == (303, "/login?next=/%3Fq%3D1", b"")
    assert (await visit.get("/api/")).status == 401
    assert (await visit.get("/login")).status == 200
    assert HOSTILE not in text_of(await visit.get("/login"))


async def test_a_login_makes_a_session_that_ends_with_its_token_only() -> None:
    visit = Visit(people())
    entered = await visit.post("/login", LOGIN)
    assert (entered.status, header(entered, "Location")) == (303, "/")
    assert visit.last_cookie.startswith("triomq_80=")
    assert visit.last_cookie.endswith("; HttpOnly; SameSite=Strict; Path=/")
    page = text_of(await visit.get("/"))
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None
    assert (await visit.post("/logout", "csrf=wrong")).status == 403
    assert (await visit.get("/")).status == 200
    assert (await visit.post("/logout", f"csrf={token[1]}")).status == 303
    assert (await visit.get("/")).status == 303


async def test_the_cookie_is_for_https_only_where_there_is_https() -> None:
    visit = Visit(people(), scheme="https")
    await visit.post("/login", LOGIN)
    assert visit.last_cookie.endswith("; Secure")


async def test_the_token_of_a_logout_is_that_of_its_own_session() -> None:
    visit = Visit(people())
    pages = []
    for _ in range(2):
        await visit.post("/login", LOGIN)
        pages.append(re.findall(r'name="csrf" value="([^"]+)"', text_of(await visit.get("/")))[0])
    assert (await visit.post("/logout", f"csrf={pages[0]}")).status == 403


async def test_a_change_from_another_site_is_refused() -> None:
    visit = Visit(people())
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://localhost"},
        {"origin": "", "sec_fetch_site": "cross-site"},
        {"origin": "", "sec_fetch_site": "same-site"},
    ):
        assert (await visit.post("/login", LOGIN, **headers)).status == 403
    assert (await visit.post("/login", LOGIN, origin="")).status == 303  # a program that is no browser


async def test_five_wrong_logins_of_an_address_wait_and_another_address_does_not() -> None:
    visit = Visit(people())
    for _ in range(sessions.MOST_FAILURES):
        assert (await visit.post("/login", "name=alice&secret=no")).status == 403
    assert (await visit.post("/login", LOGIN)).status == 429
    visit.address = "10.0.0.2"
    assert (await visit.post("/login", LOGIN)).status == 303
    visit.address = "10.0.0.1"
    visit.clock.now += sessions.FAILURE_SECONDS + 1
    assert (await visit.post("/login", LOGIN)).status == 303


async def test_a_host_has_one_count_for_its_whole_ipv6_network() -> None:
    visit = Visit(people())
    for number in range(sessions.MOST_FAILURES):
        visit.address = f"2001:db8::{number}"
        await visit.post("/login", "name=alice&secret=no")
    visit.address = "2001:db8::ffff"
    assert (await visit.post("/login", LOGIN)).status == 429
    visit.address = "2001:db8:0:1::1"
    assert (await visit.post("/login", LOGIN)).status == 303


async def test_a_session_ends_by_rest_by_age_by_a_new_secret_and_with_its_account() -> None:
    known = people()
    visit = Visit(known)

    async def enter() -> None:
        visit.clock.now += sessions.LONGEST_SECONDS
        await visit.post("/login", LOGIN)
        assert (await visit.get("/")).status == 200

    await enter()
    visit.clock.now += sessions.IDLE_SECONDS + 1
    assert (await visit.get("/")).status == 303
    await enter()
    for _ in range(int(sessions.LONGEST_SECONDS / sessions.IDLE_SECONDS)):
        assert (await visit.get("/")).status == 200
        visit.clock.now += sessions.IDLE_SECONDS
    visit.clock.now += 1
    assert (await visit.get("/")).status == 303
    await enter()
    known.known["alice"] = Person("alice", stamp="2")
    assert (await visit.get("/")).status == 303
    await enter()
    known.known.clear()
    assert (await visit.get("/")).status == 303


def test_sessions_and_failures_are_bounded() -> None:
    known = people()
    table = sessions.Sessions(lambda: 0.0)
    first = table.begin(known.known["alice"])
    assert table.find(first, known) is not None
    for _ in range(sessions.MOST_SESSIONS):
        table.begin(known.known["alice"])
    assert table.find(first, known) is None
    for number in range(sessions.MOST_ADDRESSES + 50):
        table.failed(f"10.1.{number // 256}.{number % 256}")
    assert len(table._failures) == sessions.MOST_ADDRESSES


@pytest.mark.parametrize(
    ("host", "is_good"),
    [
        ("localhost:8080", True),
        ("127.0.0.1", True),
        ("[::1]:80", True),
        ("10.1.2.3:80", True),
        ("MQ.example:80", True),
        ("mq.example.", True),
        ("evil.example", False),
        ("", False),
        ("mq.example.evil.example", False),
    ],
)
def test_only_own_names_are_hosts(host: str, is_good: bool) -> None:
    assert host_judge("mq.example, other.example")(host) is is_good


def test_an_origin_is_compared_with_the_host() -> None:
    assert is_own_change({"origin": "http://LOCALHOST:80", "host": "localhost:80"}, "http")
    assert not is_own_change({"origin": "http://localhost:81", "host": "localhost:80"}, "http")
    assert not is_own_change({"origin": "http://", "host": "localhost"}, "http")


@pytest.mark.parametrize(
    "target", ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\r\nb", "/\té", "javascript:1"]
)
async def test_a_login_leads_to_no_other_site(target: str) -> None:
    assert own_path(target) == "/"
    assert own_path("/topics?q=a&page=2") == "/topics?q=a&page=2"


def test_a_malformed_cookie_is_none() -> None:
    assert cookies_of({"cookie": "a=1; b=2"}) == {"a": "1", "b": "2"}
    assert cookies_of({"cookie": "(=)\x00;;==; no; a=1"})["a"] == "1"
    assert cookies_of({}) == {}


@pytest.mark.parametrize(
    ("address", "has_login", "tls", "insecure", "named"),
    [
        ("127.0.0.1", False, False, False, None),
        ("::1", False, False, False, None),
        ("", False, False, False, "aclEnable=true"),
        ("0.0.0.0", True, False, False, "dashboardTls=true"),
        ("10.0.0.1", False, True, False, "aclEnable=true"),
        ("10.0.0.1", True, True, False, None),
        ("0.0.0.0", False, False, True, None),
    ],
)
def test_other_machines_need_login_and_tls_or_a_word(
    address: str, has_login: bool, tls: bool, insecure: bool, named: str | None
) -> None:
    settings = ServerSettings(dashboard_address=address, dashboard_tls=tls, dashboard_insecure=insecure)
    text = objection(settings, has_login=has_login)
    assert text is None if named is None else named in (text or "")


async def test_the_language_is_chosen_by_a_link_then_a_cookie_then_the_browser() -> None:
    visit = Visit()
    assert 'lang="en"' in text_of(await visit.get("/"))
    assert "概览" in text_of(await visit.get("/", accept_language="zh-CN,en"))
    assert "概览" in text_of(await visit.get("/?lang=zh"))
    assert "概览" in text_of(await visit.get("/"))
    assert "概览" not in text_of(await visit.get("/?lang=en"))
    assert (await visit.get("/?lang=%3Cb%3E")).headers == []


async def test_the_link_to_the_other_language_leads_to_the_same_place() -> None:
    html = text_of(await Visit().get("/?name=a%26b%22&path=1&lang=en"))
    assert 'href="?name=a%26b%22&amp;path=1&amp;lang=zh"' in html
    assert '<span lang="zh">中文</span> (Chinese)' in html, "for those who have no Chinese font"


async def test_the_login_page_speaks_the_language_of_the_browser() -> None:
    page = await Visit(People()).get("/login", accept_language="zh-CN,en")
    assert 'lang="zh"' in text_of(page)
