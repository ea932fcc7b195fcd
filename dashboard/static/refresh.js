// Replaces the content of the page with a newer one every few seconds, and helps the keyboard. The page is complete without this script.
"use strict";
(() => {
  // The keyboard scrolls what does not fit, in every browser.
  function scrollable() {
    document.querySelectorAll(".table").forEach((one) => {
      if (one.scrollWidth > one.clientWidth) one.tabIndex = 0; else one.removeAttribute("tabindex");
    });
  }
  scrollable();
  window.addEventListener("resize", scrollable);

  // Times are in UTC; the pointer shows the local one.
  function localTimes() {
    document.querySelectorAll("time[datetime]").forEach((one) => {
      one.title = new Date(one.dateTime).toLocaleString();
    });
  }
  localTimes();

  function bytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = 0;
    while (Math.abs(value) >= 1024 && power < units.length - 1) { value /= 1024; power += 1; }
    return `${value.toFixed(power ? 1 : 0)} ${units[power]}`;
  }

  // The value of a chart under the pointer, and when it was that.
  document.addEventListener("pointermove", (event) => {
    const drawing = event.target.closest && event.target.closest(".chart svg");
    document.querySelectorAll(".chart .at").forEach((one) => { one.textContent = one.dataset.empty; });
    if (!drawing) return;
    const { points, begin, step, width, span, unit } = drawing.dataset;
    const values = JSON.parse(points);
    const box = drawing.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * width;
    const number = Math.round((x - begin) / step);
    if (!(number in values)) return;
    const moment = new Date(Date.now() - (values.length - 1 - number) * step / width * span * 1000);
    const text = unit === "B/s" ? `${bytes(values[number])}/s` : `${values[number].toLocaleString()}${unit}`;
    drawing.closest(".chart").querySelector(".at").textContent = `${moment.toLocaleTimeString()}: ${text}`;
  });

  const seconds = Number(document.body.dataset.refresh || 0);
  if (!seconds) return;
  const trouble = document.getElementById("trouble");
  let since = null;

  function busy() {
    const here = document.activeElement;
    const isTyping = here && here.closest("#main") && /^(INPUT|SELECT|TEXTAREA)$/.test(here.tagName);
    return isTyping || String(window.getSelection());
  }

  // What the page says is of the past now: nothing on it may look well.
  function lost(now) {
    since = now;
    document.body.classList.add("unreachable");
    trouble.textContent = `${trouble.dataset.text} ${now.toISOString().slice(11, 19)}`;
  }

  function reached() {
    since = null;
    document.body.classList.remove("unreachable");
    trouble.textContent = "";
  }

  async function refresh() {
    if (document.hidden) return;
    try {
      const response = await fetch(location.href, { signal: AbortSignal.timeout(10000) });
      if (response.redirected) { location.href = response.url; return; }
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const fresh = page.getElementById("main");
      const main = document.getElementById("main");
      if (!fresh) throw new Error(`no page: ${response.status}`);
      reached();
      if (busy()) return;
      const focused = document.activeElement && document.activeElement.getAttribute("href");
      const isOpen = [...main.querySelectorAll("details")].map((one) => one.open);
      main.replaceChildren(...fresh.childNodes);
      main.querySelectorAll("details").forEach((one, number) => { one.open = Boolean(isOpen[number]); });
      const again = focused && [...main.querySelectorAll("a[href]")].find((one) => one.getAttribute("href") === focused);
      if (again) again.focus({ preventScroll: true });
      scrollable();
      localTimes();
    } catch (error) {
      if (!since) lost(new Date());
    }
  }

  (async () => {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
      await refresh();
    }
  })();
})();
