"""Who may change something through the dashboard, and what strangers try."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from urllib.parse import urlencode

import pytest
import trio
from site_visit import HOSTILE, People, Person, Visit, header, text_of

from triomq.dashboard.acting import MOST_PREVIEWS
from triomq.dashboard.one_time_token import OneTimeToken
from triomq.dashboard.sessions import Session

PATH = "/act/thing"


def people() -> People:
    return People({"root": Person("root", is_admin=True), "alice": Person("alice")})


async def entered(name: str = "root", people_: People | None = None) -> Visit:
    visit = Visit(people_ or people())
    assert (await visit.post("/login", f"name={name}&secret={name}{name}")).status == 303
    return visit


def session_of(visit: Visit) -> Session:
    [session] = visit.site._sessions._sessions.values()
    return session


async def csrf_of(visit: Visit) -> str:
    return re.findall(r'name="csrf" value="([^"]+)"', text_of(await visit.get("/")))[0]


async def form(visit: Visit, thing: str = "t", mode: str = "change", **more: str) -> str:
    return urlencode({"csrf": await csrf_of(visit), "thing": thing, "mode": mode, **more})


async def preview_of(visit: Visit, thing: str = "t", mode: str = "change") -> str:
    page = await visit.post(PATH, await form(visit, thing, mode))
    assert page.status == 200
    return re.findall(r'name="preview" value="([^"]+)"', text_of(page))[0]


async def test_a_change_is_previewed_confirmed_and_then_reported() -> None:
    visit = await entered()
    confirmation = await preview_of(visit)
    assert visit.things.done == [], "a preview changes nothing"
    result = await visit.post(PATH, await form(visit, preview=confirmation))
    assert (result.status, visit.things.done) == (200, [("t", "root", "10.0.0.1")])
    assert "Not all of it was done" in text_of(result), "the outcome of this one says that it failed"


async def test_a_confirmation_is_good_once_and_for_what_was_previewed_only() -> None:
    visit = await entered()
    confirmation = await preview_of(visit)
    again = await visit.post(PATH, await form(visit, "other", preview=confirmation))
    assert (again.status, visit.things.done) == (409, [])
    assert "This preview was used" in text_of(again)
    assert (await visit.post(PATH, await form(visit, preview=confirmation))).status == 409, "it was used"
    assert (await visit.post(PATH, await form(visit, preview="made-up"))).status == 409
    confirmation = await preview_of(visit)
    assert (await visit.post(PATH, await form(visit, preview=confirmation))).status == 200
    assert (await visit.post(PATH, await form(visit, preview=confirmation))).status == 409, "a second click"
    assert len(visit.things.done) == 1


async def test_previews_that_wait_are_bounded() -> None:
    visit = await entered()
    first = await preview_of(visit)
    for _ in range(MOST_PREVIEWS):
        last = await preview_of(visit)
    assert len(session_of(visit).previews) == MOST_PREVIEWS
    assert (await visit.post(PATH, await form(visit, preview=first))).status == 409
    assert (await visit.post(PATH, await form(visit, preview=last))).status == 200


async def test_what_deletes_wants_the_name_typed() -> None:
    visit = await entered()
    for typed in ("", "T", "t "):
        confirmation = await preview_of(visit, mode="delete")
        page = await visit.post(PATH, await form(visit, mode="delete", preview=confirmation, typed=typed))
        assert (page.status, visit.things.done) == (409, [])
        assert "The name that was typed is another one" in text_of(page)
    confirmation = await preview_of(visit, mode="delete")
    assert (await visit.post(PATH, await form(visit, mode="delete", preview=confirmation, typed="t"))).status == 200
    assert len(visit.things.done) == 1


@pytest.mark.parametrize("csrf", ["", "wrong", "\u4e2d"])
async def test_a_form_without_the_token_of_its_session_changes_nothing(csrf: str) -> None:
    visit = await entered()
    confirmation = await preview_of(visit)
    for more in ({}, {"preview": confirmation}):
        page = await visit.post(PATH, urlencode({"csrf": csrf, "thing": "t", "mode": "change", **more}))
        assert (page.status, visit.things.done) == (403, [])
    assert (await visit.post(PATH, "thing=t&mode=change")).status == 403
    assert (await visit.post(PATH, await form(visit, preview=confirmation))).status == 200, "it was not used up"


async def test_the_token_of_another_session_changes_nothing() -> None:
    visit = await entered()
    foreign = await csrf_of(visit)
    confirmation = await preview_of(visit)
    visit.cookies.clear()
    assert (await visit.post("/login", "name=root&secret=rootroot")).status == 303
    stolen = urlencode({"csrf": foreign, "thing": "t", "mode": "change", "preview": confirmation})
    assert (await visit.post(PATH, stolen)).status == 403
    page = await visit.post(PATH, await form(visit, preview=confirmation))
    assert (page.status, visit.things.done) == (409, []), "a preview is of its own session"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://localhost"},
        {"origin": "http://localhost:8081"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "", "sec_fetch_site": "cross-site"},
    ],
)
async def test_a_form_of_another_site_changes_nothing(headers: dict[str, str]) -> None:
    visit = await entered()
    body = await form(visit, preview=await preview_of(visit))
    assert (await visit.post(PATH, body, **headers)).status == 403
    assert visit.things.done == []
    assert (await visit.post(PATH, body, sec_fetch_site="same-origin")).status == 200


async def test_a_link_changes_nothing() -> None:
    visit = await entered()
    query = await form(visit, preview=await preview_of(visit))
    page = await visit.get(f"{PATH}?{query}")
    assert (page.status, header(page, "Allow"), visit.things.done) == (405, "POST", [])
    assert (await visit.get(f"/api{PATH}?{query}")).status == 404


async def test_only_administrators_who_have_logged_in_change_something() -> None:
    visit = await entered("alice")
    assert (await visit.post(PATH, await form(visit))).status == 403
    assert (await visit.get("/form")).status == 403
    stranger = Visit(people())
    assert (await stranger.post(PATH, "csrf=&thing=t&mode=change")).status == 403
    assert visit.things.done == stranger.things.done == []


async def test_an_administrator_who_is_one_no_more_changes_nothing() -> None:
    known = people()
    visit = await entered(people_=known)
    body = await form(visit, preview=await preview_of(visit))
    known.known["root"] = Person("root", is_admin=False)
    assert (await visit.post(PATH, body)).status == 403
    known.known["root"] = Person("root", is_admin=True, stamp="2")
    assert (await visit.post(PATH, body)).status == 403, "the session ended with the secret"
    assert visit.things.done == []


async def test_read_only_refuses_what_was_allowed_before() -> None:
    visit = await entered()
    assert (await visit.get("/form")).status == 200
    body = await form(visit, preview=await preview_of(visit))
    visit.is_read_only = True
    page = await visit.post(PATH, body)
    assert (page.status, visit.things.done) == (403, [])
    assert "read-only" in text_of(page)
    assert (await visit.get("/form")).status == 403


async def test_names_with_markup_stay_text_in_a_preview_a_result_and_a_refusal() -> None:
    visit = await entered()
    fields = {"csrf": await csrf_of(visit), "thing": HOSTILE, "mode": "delete"}
    preview = text_of(await visit.post(PATH, urlencode(fields)))
    confirmation = re.findall(r'name="preview" value="([^"]+)"', preview)[0]
    result = text_of(await visit.post(PATH, urlencode({**fields, "preview": confirmation, "typed": HOSTILE})))
    assert visit.things.done[0][0] == HOSTILE
    refused = await visit.post(PATH, await form(visit, "refused"))
    assert refused.status == 400
    for html in (preview, result, text_of(refused)):
        assert "<script>alert" not in html
        assert "&lt;script&gt;alert" in html


async def test_a_field_that_is_missing_or_too_long_is_no_empty_one() -> None:
    visit = await entered()
    csrf = await csrf_of(visit)
    assert (await visit.post(PATH, urlencode({"csrf": csrf, "thing": "t"}))).status == 400
    assert (await visit.post(PATH, urlencode({"csrf": csrf, "thing": "t" * 513, "mode": "change"}))).status == 400
    assert visit.things.done == []


# -- the one-time token ------------------------------------------------------------------------------------------------


def token_in(folder: Path) -> OneTimeToken:
    token = OneTimeToken(folder / "dashboard.token")
    token.renew()
    return token


async def test_without_accounts_the_token_of_the_file_lets_its_reader_act_once(tmp_path: Path) -> None:
    token = token_in(tmp_path)
    first = token.path.read_text().strip()
    assert stat.S_IMODE(token.path.stat().st_mode) == 0o600
    visit = Visit(address="127.0.0.1", token=token)
    page = text_of(await visit.get("/"))
    assert "/login?next" in page
    assert "csrf" not in page
    assert str(token.path) in text_of(await visit.get("/login"))
    assert (await visit.post("/login", "secret=wrong")).status == 403
    assert (await visit.post("/login", urlencode({"secret": first}))).status == 303
    confirmation = await preview_of(visit)
    assert (await visit.post(PATH, await form(visit, preview=confirmation))).status == 200
    assert visit.things.done == [("t", "", "127.0.0.1")]
    visit.cookies.clear()
    assert (await visit.post("/login", urlencode({"secret": first}))).status == 403, "it was used"
    second = token.path.read_text().strip()
    assert second != first
    assert (await visit.post("/login", urlencode({"secret": second}))).status == 303


def test_a_token_is_used_up_before_there_is_another(tmp_path: Path) -> None:
    token = token_in(tmp_path)
    first = token.path.read_text()
    assert token.log_in("", first) is not None
    assert token.log_in("", first) is None


async def test_the_token_is_for_this_machine_only(tmp_path: Path) -> None:
    token = token_in(tmp_path)
    body = urlencode({"secret": token.path.read_text().strip()})
    for address in ("10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1"):
        visit = Visit(address=address, token=token)
        assert (await visit.post("/login", body)).status == 403
        assert "/login" not in text_of(await visit.get("/"))
    visit = Visit(address="::1", token=token)
    assert (await visit.post("/login", body)).status == 303, "nobody has used it"
    visit.address = "10.0.0.1"
    assert (await visit.post(PATH, await form(visit) if "csrf" in text_of(await visit.get("/")) else "")).status == 403
    assert visit.things.done == []


async def test_a_token_is_not_guessed_forever(tmp_path: Path) -> None:
    visit = Visit(address="127.0.0.1", token=token_in(tmp_path))
    statuses = [(await visit.post("/login", f"secret={number}")).status for number in range(7)]
    assert statuses == [403] * 5 + [429] * 2


async def test_a_token_that_cannot_be_written_lets_nobody_in(tmp_path: Path) -> None:
    token = OneTimeToken(tmp_path / "missing" / "dashboard.token")
    await trio.to_thread.run_sync(token.renew)
    visit = Visit(address="127.0.0.1", token=token)
    assert (await visit.post("/login", "secret=")).status == 403


async def test_a_token_replaces_what_somebody_else_put_in_its_place(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    for name in ("dashboard.token", "dashboard.token.new"):
        (tmp_path / name).symlink_to(victim)
    token = token_in(tmp_path)
    assert (victim.read_text(), token.path.is_symlink()) == ("kept", False)
