// Adds messages to the page as the broker stores them. The page shows the newest ones without this script.
"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live || !window.EventSource) return;
  const state = document.getElementById("live-state");
  const most = 200;
  const source = new EventSource(live.dataset.events);

  function say(text) { state.textContent = text; }

  function cell(text, className) {
    const made = document.createElement("td");
    const inside = document.createElement("bdi");
    inside.textContent = text;
    made.append(inside);
    made.className = className;
    return made;
  }

  function line(row) {
    const made = document.createElement("tr");
    const head = document.createElement("th");
    const link = document.createElement("a");
    link.href = document.body.dataset.root + "/message?id=" + encodeURIComponent(row.id);
    const id = document.createElement("code");
    id.textContent = row.unique_key || row.id;
    link.append(id);
    head.scope = "row";
    head.className = "id";
    head.append(link);
    const moment = new Date(row.stored_ms).toISOString().replace("T", " ").replace("Z", "");
    made.append(head, cell(moment, ""), cell(row.queue, "num"), cell(row.offset, "num"), cell(row.tags, "brief"), cell(row.keys, "brief"), cell(row.begin, "rest"));
    return made;
  }

  source.onopen = () => say(state.dataset.on);
  source.onerror = () => say(state.dataset.off);
  source.addEventListener("busy", () => say(state.dataset.busy));
  source.onmessage = (event) => {
    const news = JSON.parse(event.data);
    const body = live.tBodies[0];
    const empty = body.querySelector(".empty");
    if (empty && news.rows.length) empty.parentElement.remove();
    for (const row of news.rows) body.prepend(line(row));
    while (body.rows.length > most) body.rows[body.rows.length - 1].remove();
    say(news.skipped ? `${state.dataset.skipped} ${news.skipped}` : state.dataset.on);
  };
})();
