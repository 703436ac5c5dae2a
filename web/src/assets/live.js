// Replaces the parts of a page that have changed, while the page is seen. Without this script the page stays as it was read.
//
// A part that a person is busy with waits: one with the focus, a selection, an open list or the pointer on its rows. The key `.`
// shows what waits. Only HTML of this server becomes markup, by the one policy that the server allows.

const policy = window.trustedTypes?.createPolicy("windlass", { createHTML: (html) => html });
const trusted = (html) => (policy ? policy.createHTML(html) : html);

const status = document.getElementById("live");
const readAt = document.getElementById("read-at");
const address = document.body.dataset.live;

/** Parts that came and are not shown yet, by their names. */
const waiting = new Map();
let source = null;
let failure = "";
let lastId = "";

const say = () => {
  if (!status || !address) return;
  let text = source ? "● Live" : "○ Not live";
  if (failure) text = "○ " + failure;
  if (waiting.size > 0) text += " · " + waiting.size + " changed: show with .";
  if (status.textContent !== text) status.textContent = text;
  status.toggleAttribute("data-live", Boolean(source) && !failure);
};

const find = (name) => [...document.querySelectorAll("[data-part]")].find((it) => it.dataset.part === name);

/** Whether a person is busy with a part, so that it must not change under their hands. */
const isBusy = (part) => {
  if (part.contains(document.activeElement) && document.activeElement !== document.body) return true;
  const selection = document.getSelection();
  if (selection && !selection.isCollapsed && selection.containsNode(part, true)) return true;
  // What a person typed is not lost, nor is a form that is open.
  const typed = [...part.querySelectorAll("input:not([type=hidden])")];
  if (typed.some((it) => it.value !== it.defaultValue)) return true;
  if (part.querySelector("details.act[open]")) return true;
  return part.querySelector("tbody tr:hover, .item:hover, .graph a:hover") !== null;
};

const summaries = (part) =>
  new Set([...part.querySelectorAll("details[open] > summary")].map((it) => it.textContent));

const show = (part, { digest, html }) => {
  const template = document.createElement("template");
  template.innerHTML = trusted(html);
  const open = summaries(part);
  const wide = [...part.querySelectorAll(".wide")].map((it) => it.scrollLeft);
  part.replaceChildren(template.content);
  part.dataset.digest = digest;
  for (const summary of part.querySelectorAll("details > summary")) {
    if (open.has(summary.textContent)) summary.parentElement.open = true;
  }
  part.querySelectorAll(".wide").forEach((it, at) => (it.scrollLeft = wide[at] ?? 0));
};

/** Shows what waits, all of it or what is in no hands. */
const settle = (isForced) => {
  for (const [name, change] of waiting) {
    const part = find(name);
    if (part && !isForced && isBusy(part)) continue;
    waiting.delete(name);
    if (part) show(part, change);
  }
  say();
};

const receive = (event) => {
  const change = JSON.parse(event.data);
  const part = find(change.part);
  if (!part) return;
  waiting.delete(change.part);
  if (part.dataset.digest !== change.digest) waiting.set(change.part, change);
};

const connect = () => {
  if (source || !address || document.visibilityState !== "visible") return;
  const begin = new URL(address, location.href);
  if (lastId) begin.searchParams.set("at", lastId);
  source = new EventSource(begin);
  source.addEventListener("part", receive);
  source.addEventListener("read", (event) => {
    const { at, watched } = JSON.parse(event.data);
    failure = watched ? "" : "Not live: changes are not watched, and it is read now and then";
    lastId = event.lastEventId;
    if (readAt) readAt.textContent = at;
    settle(false);
  });
  source.addEventListener("failed", (event) => {
    failure = "Not live: " + JSON.parse(event.data).text;
    say();
  });
  source.addEventListener("live", () => {
    failure = "";
    say();
  });
  source.addEventListener("error", () => {
    failure = failure || "Not live since " + new Date().toISOString().slice(11, 19) + " UTC";
    // The browser tries again by itself, unless it was refused.
    if (source?.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(connect, 5000);
    }
    say();
  });
};

const disconnect = () => {
  source?.close();
  source = null;
};

/** How long ago a time is, in the words of the server. */
const age = (seconds) => {
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(seconds / 3600);
  const days = Math.floor(seconds / 86400);
  if (seconds < 120) return seconds + "s";
  if (minutes < 10 && seconds % 60 > 0) return minutes + "m" + (seconds % 60) + "s";
  if (minutes < 180) return minutes + "m";
  if (hours < 8 && minutes % 60 > 0) return hours + "h" + (minutes % 60) + "m";
  if (hours < 48) return hours + "h";
  if (days < 8 && hours % 24 > 0) return days + "d" + (hours % 24) + "h";
  return days + "d";
};

const growOld = () => {
  for (const time of document.querySelectorAll("time[title]")) {
    const seconds = Math.floor((Date.now() - Date.parse(time.dateTime)) / 1000);
    const text = age(Math.max(0, seconds));
    if (time.textContent !== text) time.textContent = text;
  }
};

if (address) {
  document.addEventListener("visibilitychange", () =>
    document.visibilityState === "visible" ? connect() : disconnect());
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);
  // What waits is shown once the person is done.
  for (const name of ["focusout", "pointerout", "selectionchange"]) {
    document.addEventListener(name, () => waiting.size > 0 && setTimeout(() => settle(false), 300));
  }
  document.addEventListener("windlass:show", () => settle(true));
  setInterval(() => {
    settle(false);
    growOld();
  }, 10000);
  say();
  connect();
}
