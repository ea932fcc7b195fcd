"""The dashboard as people meet it: in Chromium, with the mouse and without, wide, narrow, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browsed import (
    ACTING_PAGES,
    DUNNED,
    DUNNING,
    HOSTILE,
    HOSTILE_TOPIC,
    LIMIT_SECONDS,
    MANY_GROUPS,
    MANY_TOPICS,
    NAME_SERVER_PAGES,
    ORDERS,
    PAGES,
    Shown,
    Watched,
    chromium,
    large_tables,
    numbered,
    shown,
    shown_name_server,
    trading,
)
from free_ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
WIDE, NARROW = (1400, 900), (390, 844)
REFRESH_MS = 6_000
MOST_PAGE_BYTES = 64_000
ACCOUNTS = """accounts:
- {accessKey: reader-1, secretKey: secret-of-reader, topicPerms: [open=SUB]}
- {accessKey: administrator, secretKey: secret-of-admin, admin: true}
"""


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Start a NameServer; its address, and that of its dashboard."""
    with shown_name_server(tmp_path_factory.mktemp("dashboard") / "namesrv") as found:
        yield found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, name_server: tuple[str, str]) -> Iterator[Shown]:
    """Start a broker with messages of every kind, many topics and groups, and a group at work."""
    folder = tmp_path_factory.mktemp("dashboard")
    large_tables(folder)
    # One NameServer is away, which is an alarm of the cluster.
    with shown(folder, f"{name_server[0]};127.0.0.1:{free_port()}") as found, trading(found.cluster.name_server):
        yield found


@pytest.fixture(scope="module")
def browser(broker: Shown) -> Iterator[Browser]:
    """Start one browser for all tests. The broker comes first: its clients are for programs without an event loop."""
    pytest.importorskip("playwright", reason="the extra `browser` is not installed")
    path = chromium()
    if path is None:
        pytest.skip("there is no Chromium")
    from playwright.sync_api import sync_playwright

    # Tests may run as root, and in containers whose shared memory is small.
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, headless=True, args=arguments)
        yield found
        found.close()


Open = Callable[..., Watched]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Return what opens a page in a context of its own."""
    with ExitStack() as stack:

        def opened(size: tuple[int, int] = WIDE, **options: Any) -> Watched:
            viewport = {"width": size[0], "height": size[1]}
            context = browser.new_context(viewport=viewport, locale="en-GB", **options)  # type: ignore[arg-type]
            stack.callback(context.close)
            context.set_default_timeout(LIMIT_SECONDS * 1000)
            return Watched(context.new_page())

        yield opened


@pytest.fixture(scope="module")
def entered(browser: Browser, broker: Shown) -> Any:
    """Log in with the token, once, and return the session."""
    context = browser.new_context()
    page = context.new_page()
    log_in(page, broker)
    state = context.storage_state()
    context.close()
    return state


def log_in(page: Page, broker: Shown) -> None:
    page.goto(f"{broker.origin}/login")
    page.get_by_label("Token").fill(broker.token())
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").wait_for()


def picture(page: Page, folder: Path, name: str) -> None:
    """Leave a picture in the output of the test."""
    page.screenshot(path=folder / f"{name}.png", full_page=True)


def name_of(path: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in path)[:60]


# -- every page --------------------------------------------------------------------------------------------------------


def examined(watched: Watched, folder: Path, name: str) -> list[str]:
    """Return the faults of the page that is open, wide, dark and narrow, and leave a picture. Axe, which takes longer
    than the page, applies all rules once, and in the dark the one that depends on colours."""
    page = watched.page
    picture(page, folder, name_of(name))
    found = [*watched.faults, *watched.faults_of_layout(), *watched.findings_of_axe()]
    page.emulate_media(color_scheme="dark")
    found += watched.findings_of_axe("color-contrast")
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )  # its listeners ran
    found += [f"narrow: {fault}" for fault in watched.faults_of_layout()]
    if found:
        picture(page, folder, f"{name_of(name)}-narrow")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    watched.faults.clear()
    return found


def faults_of_pages(watched: Watched, folder: Path, origin: str, paths: Sequence[str]) -> dict[str, list[str]]:
    faults = {}
    for path in paths:
        watched.page.goto(origin + path)
        found = examined(watched, folder, path)
        if found:
            faults[path] = found
    return faults


def test_every_page_opens_without_a_fault_and_fits(
    open_page: Open, broker: Shown, entered: Any, tmp_path: Path
) -> None:
    watched = open_page(storage_state=entered)
    page = watched.page
    assert faults_of_pages(watched, tmp_path, broker.origin, (*PAGES, *ACTING_PAGES)) == {}
    page.goto(f"{broker.origin}/messages?topic={ORDERS}")
    page.locator("tbody .id a").first.click()
    page.get_by_role("heading", name="Properties").wait_for()
    assert examined(watched, tmp_path, "message") == []
    page.get_by_role("link", name="Hand to a consumer").click()
    page.get_by_role("columnheader", name="Client").wait_for()
    assert examined(watched, tmp_path, "hand") == []
    page.goto(f"{broker.origin}/group?name=billing")
    page.locator("tbody a[href*='/member?']").first.click()
    page.get_by_role("heading", name="Rates").wait_for()
    assert examined(watched, tmp_path, "member") == []
    page.get_by_role("link", name="Show the stacks of its threads").click()
    page.get_by_role("heading", name="Stacks of threads").wait_for()
    assert examined(watched, tmp_path, "stacks") == []
    page.goto(broker.origin)
    alarms = page.get_by_role("list", name="Alarms of the cluster")
    assert "does not respond" in alarms.inner_text(), "somebody has looked at the cluster"
    assert examined(watched, tmp_path, "alarms") == []
    page.context.clear_cookies()
    assert faults_of_pages(watched, tmp_path, broker.origin, ["/login"]) == {}


def test_every_page_of_a_name_server_opens_without_a_fault_and_fits(
    open_page: Open, broker: Shown, name_server: tuple[str, str], tmp_path: Path
) -> None:
    watched = open_page()
    address, origin = name_server
    assert faults_of_pages(watched, tmp_path, origin, NAME_SERVER_PAGES) == {}
    page = watched.page
    page.goto(origin)
    page.get_by_role("row").filter(has_text=broker.cluster.brokers["broker-a"]).wait_for()
    page.get_by_role("link", name="Cluster").click()
    page.get_by_role("link", name="Open", exact=True).click()
    assert page.url == f"{broker.origin}/"
    page.get_by_role("link", name="Cluster").first.click()
    page.get_by_role("row").filter(has_text=address).get_by_role("link", name="Open", exact=True).wait_for()


@pytest.mark.parametrize(("kind", "count"), [("topic", MANY_TOPICS), ("group", MANY_GROUPS)])
def test_thousands_of_names_are_read_page_by_page_and_found(
    open_page: Open, broker: Shown, kind: str, count: int
) -> None:
    watched = open_page()
    page = watched.page
    page.goto(f"{broker.origin}/{kind}s?sort=name&q=z-{kind}")
    pages = page.get_by_role("navigation", name="Pages of the list")
    shown_count = f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    assert f"{shown_count} entries" in pages.inner_text()
    first = page.locator("tbody th").all_inner_texts()
    pages.get_by_role("link", name="Next").click()
    page.wait_for_url("**page=2**")
    second = page.locator("tbody th").all_inner_texts()
    names = numbered(f"z-{kind}", len(first) + len(second))
    assert (first, second) == (names[: len(first)], names[len(first) :])
    page.get_by_role("searchbox", name="Search").fill(f"{kind}-{count - 1:04}")
    page.keyboard.press("Enter")
    page.get_by_role("link", name=f"z-{kind}-{count - 1:04}", exact=True).click()
    assert page.get_by_role("heading", level=1).inner_text() == f"z-{kind}-{count - 1:04}"
    assert watched.faults == []


def test_pages_have_a_size_that_the_number_of_topics_and_groups_does_not_change(
    open_page: Open, broker: Shown, name_server: tuple[str, str], entered: Any
) -> None:
    page = open_page(storage_state=entered).page
    pages = [broker.origin + path for path in (*PAGES, *ACTING_PAGES)]
    sizes = {
        url: len(page.request.get(url).body()) for url in (*pages, *[name_server[1] + one for one in ("/", "/topics")])
    }
    assert {url: size for url, size in sizes.items() if size > MOST_PAGE_BYTES} == {}


def test_every_page_is_in_reach_of_a_thumb_on_a_narrow_screen(open_page: Open, broker: Shown) -> None:
    page = open_page(NARROW, has_touch=True).page
    page.goto(broker.origin)
    menu = page.get_by_text("Menu", exact=True)
    menu.tap()
    links = page.get_by_role("navigation", name="Pages").get_by_role("link").all()
    names = [link.inner_text() for link in links]
    assert "Configuration" in names
    menu.tap()
    assert not links[0].is_visible()
    for name in names:
        menu.tap()
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).tap()
        page.wait_for_url(lambda url: True)
        assert page.locator("header [aria-current=page]").text_content() == name


def test_times_are_of_one_zone_which_the_page_names_once(open_page: Open, broker: Shown) -> None:
    page = open_page(timezone_id="America/St_Johns").page
    for path in ("/", f"/topic?name={ORDERS}", f"/messages?topic={ORDERS}", "/waiting", "/broker"):
        page.goto(broker.origin + path)
        assert page.locator("body").inner_text().count("UTC") == 1, path


def test_the_list_of_topics_begins_with_the_user_s_own(open_page: Open, broker: Shown) -> None:
    page = open_page().page
    page.goto(f"{broker.origin}/topics")
    assert ORDERS in page.locator("tbody").inner_text()
    assert "SCHEDULE_TOPIC_XXXX" not in page.locator("tbody").inner_text()
    page.get_by_role("link", name="all", exact=True).click()
    page.get_by_role("link", name="SCHEDULE_TOPIC_XXXX").wait_for()


def test_the_configuration_has_sections_and_a_filter(open_page: Open, broker: Shown) -> None:
    page = open_page().page
    page.goto(f"{broker.origin}/configuration")
    assert page.get_by_role("heading", level=2).all_inner_texts() == ["Broker", "Listening", "Connecting", "Store"]
    assert page.evaluate("document.documentElement.scrollHeight") < 2 * WIDE[1]
    page.get_by_role("heading", name="Store").click()
    page.get_by_text("mappedFileSizeCommitLog", exact=True).wait_for()
    page.get_by_role("searchbox", name="Search").fill("dashboard")
    page.keyboard.press("Enter")
    page.get_by_text("dashboardPort", exact=True).wait_for()
    assert not page.get_by_text("mappedFileSizeCommitLog", exact=True).is_visible()


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/topics?q=nothing+like+this", "search for less"),
        ("/topics?kind=ordered", "a first message makes one"),
        ("/messages", "Choose a topic above"),
        (f"/messages?topic={ORDERS}&key=none", "try without queue, offset, time and key"),
        ("/broker", "brokerRole=SLAVE"),
        ("/group?name=resting", "start a consumer of this group"),
    ],
)
def test_where_there_is_nothing_the_page_says_what_to_do(
    open_page: Open, broker: Shown, path: str, advice: str
) -> None:
    page = open_page().page
    page.goto(broker.origin + path)
    assert page.get_by_text(advice).count() == 1


# -- foreign text ------------------------------------------------------------------------------------------------------


def test_markup_in_names_keys_tags_and_bodies_stays_text(open_page: Open, broker: Shown, entered: Any) -> None:
    watched = open_page(storage_state=entered)
    page = watched.page
    assert len(HOSTILE_TOPIC) == 60
    page.goto(f"{broker.origin}/topics")
    page.get_by_role("link", name=HOSTILE_TOPIC, exact=True).click()
    assert page.get_by_role("heading", level=1).inner_text() == HOSTILE_TOPIC
    page.goto(f"{broker.origin}/messages?topic={ORDERS}")
    row = page.locator("tbody tr").filter(has_text=HOSTILE).first
    assert row.locator("td").all_inner_texts()[3:5] == [HOSTILE, HOSTILE]
    row.get_by_role("link").click()
    assert page.locator("pre.body").inner_text().startswith(HOSTILE)
    page.get_by_role("row", name="KEYS").get_by_text(HOSTILE).wait_for()
    assert page.locator("main img").count() == 0
    assert "owned" not in page.title()
    assert watched.faults == []


# -- login -------------------------------------------------------------------------------------------------------------


def test_a_login_comes_first_and_takes_the_right_secret_only(open_page: Open, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(ACCOUNTS)
    with shown(tmp_path / "store", aclEnable="true", rocketmqHome=str(tmp_path)) as guarded:
        watched = open_page()
        page = watched.page
        page.goto(f"{guarded.origin}/topics")
        picture(page, tmp_path, "login")
        for secret in ("wrong-secret", "secret-of-reader"):
            page.get_by_label("Access key").fill("reader-1")
            page.get_by_label("Secret key").fill(secret)
            page.get_by_role("button", name="Log in").click()
            if secret == "wrong-secret":
                assert "do not fit" in page.get_by_role("alert").inner_text()
        assert page.get_by_role("heading", level=1).inner_text() == "Topics", "back to the page that was asked for"
        assert page.get_by_role("link", name="Create a topic").count() == 0, "a reader does not see actions"
        page.get_by_role("button", name="Log out (reader-1)").click()
        page.get_by_label("Secret key").wait_for()
        assert watched.faults == []


def test_accounts_and_settings_are_changed_by_an_administrator(open_page: Open, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(ACCOUNTS)
    with shown(tmp_path / "store", aclEnable="true", rocketmqHome=str(tmp_path)) as guarded:
        watched = open_page()
        page = watched.page
        page.goto(f"{guarded.origin}/accounts")
        page.get_by_label("Access key").fill("administrator")
        page.get_by_label("Secret key").fill("secret-of-admin")
        page.get_by_role("button", name="Log in").click()
        pages = ("/accounts", "/edit-account", "/edit-account?name=reader-1", "/edit-white")
        assert faults_of_pages(watched, tmp_path, guarded.origin, pages) == {}
        page.goto(f"{guarded.origin}/edit-account")
        page.get_by_label("Access key").fill("writer-1")
        page.get_by_label("Permissions, one a line").fill("topic open=PUB\ngroup G=SUB")
        page.get_by_role("button", name="Show what will change").click()
        assert examined(watched, tmp_path, "account-preview") == []
        page.get_by_role("button", name="Create the account").click()
        assert len(page.locator("p.secret code").inner_text()) == 32
        assert examined(watched, tmp_path, "account-result") == []
        page.goto(f"{guarded.origin}/configuration?q=maxMessageSize")
        page.get_by_role("link", name="maxMessageSize").click()
        page.get_by_label("Value").fill("1000000")
        page.get_by_role("button", name="Show what will change").click()
        assert examined(watched, tmp_path, "setting-preview") == []
        page.get_by_role("button", name="Change the setting").click()
        page.get_by_role("row", name="maxMessageSize").get_by_text("1000000").wait_for()
        page.goto(f"{guarded.origin}/edit-quota")
        page.get_by_label("Name; an address").fill("writer-1")
        page.get_by_label("messagesIn").fill("100")
        page.get_by_role("button", name="Show what will change").click()
        assert examined(watched, tmp_path, "quota-preview") == []
        page.get_by_role("button", name="Set the quota").click()
        page.goto(f"{guarded.origin}/quotas")
        page.get_by_role("link", name="account writer-1").wait_for()
        assert examined(watched, tmp_path, "quotas") == []


def test_a_wrong_token_is_refused_and_a_right_one_is_good_once(open_page: Open, broker: Shown) -> None:
    page = open_page().page
    page.goto(broker.origin)
    page.get_by_role("link", name="Log in to change something").click()
    page.get_by_label("Token").fill("not the token")
    page.get_by_role("button", name="Log in").click()
    assert "not the token" in page.get_by_role("alert").inner_text()
    token = broker.token()
    log_in(page, broker)
    page.get_by_role("button", name="Log out").click()
    page.goto(f"{broker.origin}/login")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("alert").wait_for()


# -- actions -----------------------------------------------------------------------------------------------------------


def test_a_topic_is_made_and_deleted(open_page: Open, broker: Shown, entered: Any, tmp_path: Path) -> None:
    watched = open_page(storage_state=entered)
    page = watched.page
    page.goto(f"{broker.origin}/topics")
    page.get_by_role("link", name="Create a topic").click()
    page.get_by_label("Name").fill("made-by-hand")
    page.get_by_role("button", name="Show what will change").click()
    page.get_by_text("Nothing has changed yet").wait_for()
    picture(page, tmp_path, "preview")
    page.get_by_role("button", name="Create or change the topic").click()
    page.get_by_role("link", name="Show how it is now").click()
    assert page.get_by_role("heading", level=1).inner_text() == "made-by-hand"
    page.get_by_role("button", name="Delete the topic").click()
    confirm = page.get_by_role("button", name="Delete the topic")
    confirm.click()
    assert page.get_by_text("Nothing has changed yet").count() == 1, "the name has to be typed"
    page.get_by_role("textbox").fill("made-by-hand")
    picture(page, tmp_path, "delete")
    assert watched.faults_of_layout() == []
    confirm.click()
    page.get_by_text("The topic was deleted").wait_for()
    page.goto(f"{broker.origin}/topic?name=made-by-hand")
    assert page.get_by_role("heading", level=1).inner_text() == "Not found"
    assert watched.faults == []


def test_offsets_are_reset_after_a_preview(open_page: Open, broker: Shown, entered: Any, tmp_path: Path) -> None:
    watched = open_page(storage_state=entered)
    page = watched.page
    page.goto(f"{broker.origin}/group?name=resting")
    page.get_by_role("link", name="Change, reset or delete the group").click()
    page.get_by_label("Topic").select_option(ORDERS)
    page.get_by_role("combobox", name="To", exact=True).select_option("the end")
    page.get_by_role("button", name="Show what will change").nth(1).click()
    page.get_by_role("columnheader", name="Before").wait_for()
    picture(page, tmp_path, "reset")
    assert watched.faults_of_layout() == []
    page.get_by_role("textbox").fill("resting")
    page.get_by_role("button", name="Reset the offsets").click()
    page.get_by_text("The offsets were reset").first.wait_for()
    page.goto(f"{broker.origin}/group?name=resting")
    rows = page.get_by_role("row").filter(has_text=ORDERS).filter(has=page.get_by_role("rowheader")).all()
    assert {row.get_by_role("cell").nth(3).inner_text() for row in rows} == {"0"}, "no backlog is left"
    assert watched.faults == []


def test_a_message_is_handed_to_a_consumer(open_page: Open, broker: Shown, entered: Any, tmp_path: Path) -> None:
    watched = open_page(storage_state=entered)
    page = watched.page
    page.goto(f"{broker.origin}/messages?topic={ORDERS}&key=order-7")
    page.locator("tbody .id a").first.click()
    page.get_by_role("link", name="Hand to a consumer").click()
    page.get_by_role("row").filter(has_text="billing").get_by_role("button", name="Hand to a consumer").click()
    page.get_by_text("Nothing has changed yet").wait_for()
    assert examined(watched, tmp_path, "hand-preview") == []
    page.get_by_role("button", name="Hand the message to the consumer").click()
    page.get_by_text("The client consumed the message").wait_for()
    assert page.get_by_text("CR_SUCCESS").count() == 1
    assert examined(watched, tmp_path, "hand-result") == []


def test_dead_letters_are_sent_again_one_some_and_all_and_each_once(
    open_page: Open, broker: Shown, entered: Any
) -> None:
    watched = open_page(storage_state=entered)
    page = watched.page

    def resend(button: str, chosen: Sequence[int] = ()) -> list[str]:
        page.goto(f"{broker.origin}/letters?group={DUNNING}")
        for number in chosen:
            page.get_by_role("checkbox").nth(number).check()
        page.get_by_role("button", name=button).click()
        page.get_by_text("Nothing has changed yet").wait_for()
        assert watched.faults_of_layout() == []
        page.get_by_role("button", name="Send dead letters again").click()
        page.get_by_role("link", name="Show how it is now").wait_for()
        return page.locator("main .checks strong").all_inner_texts()

    sent, before = "The dead letter was sent again", "This dead letter was resent before"
    assert resend("Send the chosen ones again", [0]) == [sent]
    page.get_by_role("link", name="Show how it is now").click()
    assert page.get_by_role("link", name="resent").count() == 1
    assert resend("Send the chosen ones again", [0]) == [before]
    assert resend("Send the chosen ones again", [0, 1, 2]) == [before, sent, sent]
    assert resend("Send all of them again") == [*[sent] * (DUNNED - 3), "Dead letters that were resent before"]
    page.get_by_role("link", name="Show how it is now").click()
    assert page.get_by_role("link", name="resent").count() == DUNNED
    assert watched.faults == []


# -- keyboard ----------------------------------------------------------------------------------------------------------


def press_until(page: Page, name: str, most: int = 80) -> None:
    """Press Tab until what has this name has the focus, which must be visible."""
    for _ in range(most):
        page.keyboard.press("Tab")
        text, outline = page.evaluate(
            "(() => { const one = document.activeElement; const label = one.labels && one.labels[0];"
            " return [((label || one).textContent || '').trim(), getComputedStyle(one).outlineStyle] })()"
        )
        if text.startswith(name):
            assert outline == "solid", f"{name}: nobody sees that it has the focus"
            return
    raise AssertionError(f"Tab does not reach {name!r}")


def test_one_logs_in_and_acts_without_a_mouse(open_page: Open, broker: Shown) -> None:
    page = open_page().page
    page.goto(broker.origin)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main", "the first stop skips the navigation"
    page.reload()
    press_until(page, "Log in to change something")
    page.keyboard.press("Enter")
    page.get_by_label("Token").wait_for()
    page.keyboard.type(broker.token())  # it has the focus
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Log out").wait_for()
    press_until(page, "Topics")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Topics").wait_for()
    press_until(page, "Create a topic")
    page.keyboard.press("Enter")
    page.get_by_label("Name").wait_for()
    press_until(page, "Name")
    page.keyboard.type("typed-only")
    page.keyboard.press("Enter")
    page.get_by_text("Nothing has changed yet").wait_for()
    press_until(page, "Create or change the topic")
    page.keyboard.press("Enter")
    page.get_by_text("The topic was created").wait_for()


# -- refresh -----------------------------------------------------------------------------------------------------------


def test_pages_say_so_when_the_broker_stops_and_when_it_is_back(open_page: Open, tmp_path: Path) -> None:
    """Open are its overview, whose *Ready* turns grey, and its page of the cluster."""

    def colour(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.querySelector('.state .mark')).backgroundColor"))

    page, cluster = open_page().page, open_page().page
    page.clock.install()
    cluster.clock.install()
    with shown(tmp_path / "store") as stopping:
        cluster.goto(f"{stopping.origin}/cluster")
        cluster.get_by_role("rowheader", name="broker-a").last.wait_for()
        page.goto(stopping.origin)
        page.get_by_text("Ready", exact=True).wait_for()
        green = colour(page)
        page.clock.run_for(REFRESH_MS)
        assert page.get_by_text("Not reachable since").is_hidden()
    page.clock.run_for(REFRESH_MS)
    page.get_by_text("Not reachable since").wait_for()
    picture(page, tmp_path, "gone")
    assert page.get_by_text("Ready", exact=True).is_hidden()
    assert page.get_by_text("Unknown", exact=True).is_visible()
    assert colour(page) != green
    cluster.clock.run_for(REFRESH_MS)
    cluster.get_by_text("Not reachable since").wait_for()
    assert cluster.get_by_role("rowheader", name="broker-a").last.is_visible(), "what was known last stays"
    port = stopping.origin.rpartition(":")[2]
    with shown(tmp_path / "store", dashboardPort=port):
        page.clock.run_for(REFRESH_MS)
        page.get_by_text("Ready", exact=True).wait_for()
        assert colour(page) == green
        assert page.get_by_text("Not reachable since").is_hidden()
        cluster.clock.run_for(REFRESH_MS)
        cluster.get_by_text("Not reachable since").wait_for(state="hidden")


def test_a_refresh_leaves_alone_what_somebody_types(open_page: Open, broker: Shown) -> None:
    page = open_page().page
    page.clock.install()
    page.goto(f"{broker.origin}/topics")
    page.get_by_role("searchbox", name="Search").fill("half a wo")
    with page.expect_response(lambda response: response.url.endswith("/topics")):
        page.clock.run_for(REFRESH_MS)
    assert page.get_by_role("searchbox", name="Search").input_value() == "half a wo"
