// Replaces the content of the page with a newer one every few seconds. The page is complete without this script.
"use strict";
(() => {
  const seconds = Number(document.body.dataset.refresh || 0);
  if (!seconds) return;
  const trouble = document.getElementById("trouble");
  let since = null;

  function busy() {
    const here = document.activeElement;
    const isTyping = here && here.closest("#main") && /^(INPUT|SELECT|TEXTAREA)$/.test(here.tagName);
    return document.hidden || isTyping || String(window.getSelection());
  }

  async function refresh() {
    if (busy()) return;
    try {
      const response = await fetch(location.href, { signal: AbortSignal.timeout(10000) });
      if (response.redirected) { location.href = response.url; return; }
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const fresh = page.getElementById("main");
      const main = document.getElementById("main");
      if (fresh && !busy()) {
        const focused = document.activeElement && document.activeElement.getAttribute("href");
        const isOpen = [...main.querySelectorAll("details")].map((one) => one.open);
        main.replaceChildren(...fresh.childNodes);
        main.querySelectorAll("details").forEach((one, number) => { one.open = Boolean(isOpen[number]); });
        const again = focused && [...main.querySelectorAll("a[href]")].find((one) => one.getAttribute("href") === focused);
        if (again) again.focus({ preventScroll: true });
      }
      since = null;
      trouble.textContent = "";
    } catch (error) {
      since = since || new Date();
      trouble.textContent = `${trouble.dataset.text} ${since.toLocaleTimeString()}`;
    }
  }

  (async () => {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
      await refresh();
    }
  })();
})();
