// Keys for what links and fields do. Each can be done without them, and they can be turned off.

const OFF = "windlass-keys-off";
const PAGES = { o: "/", l: "/objects", i: "/incidents", c: "/changes", a: "/approvals", k: "/calendar", u: "/audits", m: "/me" };
const TABS = { w: "Why", g: "Graph", t: "Tree", d: "Diff", h: "History", e: "Events", l: "Logs", v: "Values", y: "YAML" };
const HELP = [
  ["/ or Ctrl-K", "search objects"],
  ["g, then o l i c a k u m", "overview, objects, incidents, changes, approvals, calendar, audits, me"],
  ["j, k", "next and previous entry"],
  ["Enter", "open it"],
  ["w t d h e v y, and G, L", "tabs of an object: why, tree, diff, history, events, values, YAML, graph, logs"],
  ["[, ]", "pages of a list before and behind"],
  [".", "show what has changed and waits"],
  ["?", "this list"],
];

let isAfterG = false;

const isOff = () => localStorage.getItem(OFF) === "true";

const isWriting = (target) =>
  target instanceof Element && target.closest("input, select, textarea, [contenteditable]") !== null;

const search = () => {
  const field = document.querySelector(".find input");
  field?.focus();
  field?.select();
};

/** The entries of a page: the first link of each row or item, or the nodes of a graph. */
const entries = () =>
  [...document.querySelectorAll("main tbody tr, main .item, main .tree li > div, main .graph a")]
    .map((it) => (it.matches("a") ? it : it.querySelector("a")))
    .filter((it) => it !== null);

const move = (by) => {
  const all = entries();
  const at = all.indexOf(document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by;
  const entry = all[Math.min(Math.max(next, 0), all.length - 1)];
  entry?.focus();
  entry?.scrollIntoView({ block: "nearest" });
};

const tab = (title) => {
  const link = [...document.querySelectorAll(".tabs a")].find((it) => it.textContent === title);
  link?.click();
};

const element = (name, text) => {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
};

const help = () => {
  const before = document.querySelector("dialog.keys");
  if (before) return before.close();
  const dialog = document.createElement("dialog");
  dialog.className = "keys";
  dialog.append(element("h2", "Keys"));
  const list = document.createElement("dl");
  for (const [keys, what] of HELP) list.append(element("dt", keys), element("dd", what));
  const off = element("button", isOff() ? "Turn keys on" : "Turn keys off");
  off.className = "btn";
  off.addEventListener("click", () => {
    localStorage.setItem(OFF, isOff() ? "false" : "true");
    dialog.close();
  });
  const close = element("button", "Close");
  close.className = "btn";
  close.addEventListener("click", () => dialog.close());
  dialog.append(list, off, close);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
};

const press = (event) => {
  const { key } = event;
  if (isAfterG) {
    isAfterG = false;
    if (PAGES[key]) location.assign(PAGES[key]);
    return Boolean(PAGES[key]);
  }
  if (key === "/") search();
  else if (key === "g") {
    isAfterG = true;
    setTimeout(() => (isAfterG = false), 1500);
  } else if (key === "j") move(1);
  else if (key === "k") move(-1);
  else if (key === ".") document.dispatchEvent(new Event("windlass:show"));
  else if (key === "[") document.querySelector("a[rel=prev]")?.click();
  else if (key === "]") document.querySelector("a[rel=next]")?.click();
  else if (key === "G" || key === "L") tab(TABS[key.toLowerCase()]);
  else if (key !== "g" && key !== "l" && TABS[key]) tab(TABS[key]);
  else return false;
  return true;
};

document.addEventListener("keydown", (event) => {
  const isOfBrowser = event.altKey || event.metaKey || event.ctrlKey;
  if (event.ctrlKey && !event.altKey && event.key === "k" && !isOff()) {
    event.preventDefault();
    return search();
  }
  if (isOfBrowser || isWriting(event.target) || document.querySelector("dialog[open]")) return;
  // The list of keys opens always, since it turns them on.
  if (event.key === "?") {
    event.preventDefault();
    return help();
  }
  if (!isOff() && press(event)) event.preventDefault();
});
