// Keeps the page current: a new tick of the operator makes the page fetch itself and change only what differs.
// Everything works without this script; then the page reloads itself every 15 seconds.
"use strict";
(() => {
  const status = document.getElementById("live");
  let paused = false, stale = false, busy = false, lastText = "";

  const say = (text, kind) => {
    if (text !== lastText) { status.firstChild.textContent = text; status.dataset.kind = kind; lastText = text; }
  };
  const label = document.createElement("span");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Pause";
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Resume" : "Pause";
    say(paused ? "paused" : "live", paused ? "paused" : "live");
    if (!paused && stale) update();
  });
  status.append(label);
  status.after(button);

  const keyOf = (node) => node.nodeType === 1 ? node.dataset.key || node.id || "" : "";
  const same = (one, other) =>
    one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);

  function morph(from, to) {
    if (from.isEqualNode(to)) return;
    if (from.nodeType !== 1) { from.nodeValue = to.nodeValue; return; }
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    // What somebody is typing stays.
    if (from.nodeName === "INPUT" || from.nodeName === "FORM") return;
    const keyed = new Map([...from.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
    let next = from.firstChild;
    for (const wanted of [...to.childNodes]) {
      const key = keyOf(wanted);
      let found = key ? keyed.get(key) : next && !keyOf(next) && same(next, wanted) ? next : null;
      if (found && !same(found, wanted)) found = null;
      if (!found) { from.insertBefore(wanted, next); continue; }
      if (found === next) next = next.nextSibling; else from.insertBefore(found, next);
      morph(found, wanted);
    }
    while (next) { const gone = next; next = next.nextSibling; gone.remove(); }
  }

  async function update() {
    if (paused || document.hidden) { stale = true; return; }
    if (busy) { stale = true; return; }
    busy = true; stale = false;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const id of ["content", "seen"]) {
        const from = document.getElementById(id), to = fresh.getElementById(id);
        if (from && to) morph(from, document.adoptNode(to));
      }
      const counts = [...fresh.querySelectorAll("header nav a")];
      document.querySelectorAll("header nav a").forEach((link, place) => { if (counts[place]) morph(link, counts[place]); });
      document.documentElement.dataset.updates = String(Number(document.documentElement.dataset.updates || 0) + 1);
      say("live", "live");
    } catch {
      say("connection lost, trying again", "lost");
    } finally {
      busy = false;
      if (stale && !paused && !document.hidden) setTimeout(update, 500);
    }
  }

  const source = new EventSource("/events");
  source.addEventListener("open", () => { if (!paused) say("live", "live"); if (stale) update(); });
  source.addEventListener("tick", update);
  source.addEventListener("error", () => { stale = true; say("connection lost, trying again", "lost"); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && stale) update(); });
  document.addEventListener("keydown", (event) => {
    const field = document.getElementById("q");
    if (event.key === "/" && field && !/INPUT|TEXTAREA/.test(document.activeElement.nodeName)) {
      event.preventDefault();
      field.focus();
    }
  });
})();
