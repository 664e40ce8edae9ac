// What happened: kept, filtered, shown.

import { arrange, find, h, show } from "./dom.js";
import { counted, duration, kinds, time } from "./words.js";

const most = 10000;
const page = 100;
const all = new Map(); // by what each is
let life = "", newest = "", shown = page, sorted = null;

const names = { news: "instance", change: "change", decision: "decision", event: "journal", failure: "failure" };

function text_of(kind, x) {
  if (kind === "change")
    return `${x.configuration} after ${x.trigger}: ${kinds[x.kind] ?? x.kind}` +
      (x.stall_ms > 0 ? `, ${duration(x.stall_ms)} stall` : "") +
      (x.replayed_steps ? `, ${counted(x.replayed_steps, "step")} replayed` : "");
  if (kind === "decision")
    return `${x.chosen.configuration}: ${x.reason}` +
      (x.expected_ms > 0 ? `; ${duration(x.expected_ms)} stall expected` : "");
  return kind === "failure" ? `${x.instance}: ${x.what}` : x.text;
}

/// What comes again is the same. Each manager numbers what happens to instances from 0, what happens to a job goes on.
function key_of(kind, x) {
  return `${kind}/${x.job}/${x.number}` + (kind === "news" || kind === "failure" ? `/${x.at_us}` : "");
}

/// Of a stream: another server's tells all anew.
export function take({ id, kind, data }) {
  newest = id;
  if (id.split("-")[0] !== life) {
    life = id.split("-")[0];
    all.clear();
  }
  if (!names[kind])
    return;
  const key = key_of(kind, data);
  const level = data.level ?? (kind === "failure" ? "error" : "information");
  all.set(key, { key, kind, level, at: data.wall_us / 1000, text: text_of(kind, data), lines: data.lines,
                 stays: kind === "decision" && data.generation === 0, job: data.job, element: null }); // once it is shown
  if (all.size > most)
    all.delete(all.keys().next().value);
  sorted = null;
}

export const last_id = () => newest;

/// Workers and keepers that went, as announced and not, as far as news are kept: since when (ms; null: there is none).
export function departures() {
  const result = { noticed: 0, unnoticed: 0, since: null };
  for (const x of all.values())
    if (x.kind === "news") {
      result.since ??= x.at;
      result.noticed += / is gone, as announced$/.test(x.text);
      result.unnoticed += / is lost: /.test(x.text);
    }
  return result;
}

function wanted(job) {
  const kind = find("kind").value, level = find("level").value, words = find("words").value.toLowerCase();
  return x => (kind ? x.kind === kind : !x.stays && x.kind !== "event" || x.level !== "information") &&
    (!level || x.level === level || (level === "warning" && x.level === "error")) &&
    (!x.job || x.job === job) && (!words || x.text.toLowerCase().includes(words));
}

function element_of(x) {
  x.element ??= h("li", {},
    h("time", { datetime: new Date(x.at).toISOString() }),
    h("span", x.level === "information" ? {} : { class: `badge ${x.level === "error" ? "bad" : "warning"}` },
      x.level === "information" ? names[x.kind] : x.level),
    h("div", {}, x.text, x.lines?.length > 0 && h("details", {},
      h("summary", {}, `${counted(x.lines.length, "line")} of its log`), h("pre", {}, x.lines.join("\n")))));
  show(x.element.firstChild, time(x.at)); // half a day later with its day
  return x.element;
}

export function draw(job) {
  sorted ??= [...all.values()].sort((a, b) => b.at - a.at);
  const found = sorted.filter(wanted(job));
  show(find("events-count"), `${counted(found.length, "event")} of ${sorted.length}, newest first`);
  arrange(find("events"), found.slice(0, shown).map(element_of));
  find("more").hidden = found.length <= shown;
}

/// `draw`: what shows them again.
export function set_up(redraw) {
  for (const id of ["kind", "level", "words"])
    find(id).addEventListener("input", () => {
      shown = page;
      redraw();
    });
  find("more").addEventListener("click", () => {
    shown += page;
    redraw();
  });
}
