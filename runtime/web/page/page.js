// Fetches what is new, and shows it. The whole picture comes when something happened, and each ten seconds; between,
// the stream of events has the steps.

import { Refusal, ask, follow, keep_token } from "./api.js";
import { fetch_clusters } from "./clusters.js";
import { find, h, show } from "./dom.js";
import * as events from "./events.js";
import * as forms from "./forms.js";
import * as sections from "./sections.js";
import { time } from "./words.js";

const seldom_ms = 10000, often_ms = 1500, history_ms = 10000, beside_ms = 30000, clusters_ms = 3000;
const none = Object.fromEntries(["wall_us", "job", "steps", "gradient_norm", "learning_rate", "samples_per_s", "slots",
  "used", "forecast_mean", "forecast_low", "forecast_high"].map(x => [x, []]));

let picture = null, heard_at = 0;   // and when it came, by this page's clock
let chosen = null;                  // a job in detail, if it is not the one that the picture has so
let history = none, curve = null, beside = null; // the two: { id, records, … } of jobs
let lost_since = 0;
let news = 0, shown = -1;           // what came is counted: only ages go on by themselves
let drawn = false;
let tell_there = null;
const there = new Promise(done => { tell_there = done; }); // a status is

const now = () => performance.now();
const wanted_job = () => Number(new URLSearchParams(location.hash.slice(1)).get("job"));
const sleep = ms => new Promise(done => setTimeout(done, ms));
const turned = () => new Promise(done => document.addEventListener("visibilitychange", done, { once: true }));
const seen = () => (document.hidden ? turned().then(seen) : null);

// --- what is known

function job_in(status) {
  const wanted = wanted_job();
  const found = wanted ? status.jobs.find(x => x.id === wanted) : null;
  return found ?? status.jobs.find(x => x.detailed) ?? status.jobs.at(-1) ?? null;
}

function facts() {
  const { status } = picture;
  let job = job_in(status);
  if (job && !job.detailed && chosen?.id === job.id)
    job = chosen;
  const old = lost_since > 0 || !picture.up;
  const since_us = old ? 0 : 1000 * (picture.age_ms + now() - heard_at);
  return { status, job, old, history, curve, beside, now_us: status.now_us + since_us,
           wall_ms: at_us => (status.wall_us - status.now_us + at_us) / 1000 };
}

async function fetch_picture() {
  const x = await ask("picture");
  const job = x.status && job_in(x.status);
  if (!job || job.detailed)
    chosen = null;
  else if (x.up) // else it stays as it was: nobody can be asked
    chosen = (await ask(`jobs/${job.id}`)).jobs.find(y => y.id === job.id);
  picture = x;
  heard_at = now();
  ++news;
  if (x.status)
    tell_there();
}

/// As many points of a job's losses as there are pixels, and fewer than a second's work; the same for many screens, as
/// the server gives one answer to all who ask for as many.
async function curve_of(id) {
  return id ? { id, ...await ask(`jobs/${id}/losses?points=${Math.min(2000, 500 * Math.ceil(innerWidth / 500))}`) } : null;
}

async function fetch_curve() {
  await there; // which may come behind the first history
  curve = await curve_of(picture.status && job_in(picture.status)?.id);
  ++news;
}

async function fetch_beside() {
  beside = await curve_of(Number(find("beside").value));
  ++news;
}

/// A step changes the picture where it tells of it.
function take_step(x) {
  const job = picture?.status?.jobs.find(y => y.id === x.job);
  if (!job || x.steps < job.steps_done)
    return;
  const { state, phase, loss, loss_steps, gradient_norm, learning_rate, samples_per_s } = x;
  job.steps_done = x.steps;
  Object.assign(job, { state, phase, loss, loss_steps, gradient_norm, learning_rate, samples_per_s });
  if (x.loss !== null && !(job.losses?.at(-1)?.steps >= x.loss_steps))
    job.losses?.push({ steps: x.loss_steps, loss: x.loss });
}

// --- what is shown

function draw_connection() {
  const { status } = picture ?? {};
  const figures = status ? ` What is shown is of ${time(status.wall_us / 1000)}.` : "";
  const since = status ? `The manager is away since ${time(picture.since_wall_us / 1000)}: ` : "";
  const away = lost_since ? `parcae web does not answer since ${time(lost_since)}.`
    : picture && !picture.up ? `${since}${picture.why}.` : "";
  show(find("connection"), away && away + figures);
  show(find("when"), status && !away ? `as of ${time(status.wall_us / 1000 + picture.age_ms + now() - heard_at)}` : "");
}

function choose_among(select, label, jobs, value, least) {
  label.hidden = jobs.length < least;
  show(select, jobs.map(x => h("option", { value: x.id }, x.id ? `${x.id} ${x.name}: ${x.state}` : x.name)));
  select.value = value;
}

function draw_now() {
  drawn = false;
  draw_connection();
  find("main").hidden = !picture?.status;
  if (!picture?.status)
    return;
  const x = facts();
  const how_far = sections.serves(x.job) ? "" : ` ${x.job?.steps_done}/${x.job?.steps}`;
  document.title = x.job ? `${x.old ? "? " : ""}${x.job.name}${how_far} · Parcae` : "Parcae";
  choose_among(find("job"), find("job-choice"), x.status.jobs, x.job?.id, 2);
  const others = x.status.jobs.filter(y => y.id !== x.job?.id);
  choose_among(find("beside"), find("beside-choice"), [{ id: 0, name: "none" }, ...others], beside?.id ?? 0, 2);
  sections.trains(x);
  sections.there(x);
  if (shown === news)
    return;
  shown = news;
  sections.lost(x);
  sections.will(x);
  sections.spent(x);
  sections.curves(x);
  events.draw(x.job?.id);
  forms.draw(x);
}

/// However much came, once.
function draw() {
  if (!drawn)
    setTimeout(draw_now, 100);
  drawn = true;
}

// --- what goes on for ever

let due = false, ring = () => {};

/// Something happened: the picture is old.
function wake() {
  due = true;
  ring();
}

/// What may ask the server once more; a token that is no good any more is asked for again.
async function tried(what) {
  try {
    await what();
    return true;
  } catch (e) {
    if (e instanceof Refusal && e.status === 401)
      location.reload();
    return e instanceof Refusal;
  }
}

async function keep_picture() {
  for (;;) {
    await seen();
    due = false;
    lost_since = (await tried(fetch_picture)) ? 0 : lost_since || Date.now();
    draw();
    await sleep(often_ms);
    const rung = new Promise(done => { ring = done; });
    if (!due && !lost_since && picture?.status)
      await Promise.race([rung, sleep(seldom_ms)]);
  }
}

async function keep_events() {
  for (;;) {
    await seen();
    const turn = new AbortController();
    document.addEventListener("visibilitychange", () => turn.abort(), { once: true, signal: turn.signal });
    await tried(() => follow(events.last_id(), turn.signal, x => {
      events.take(x);
      ++news;
      if (x.kind === "step")
        take_step(x.data);
      else
        wake();
      draw();
    }));
    turn.abort(); // and nothing is left of it, however often the server goes
    wake();
    await sleep(1000);
  }
}

async function keep(what, ms) {
  for (;;) {
    await seen();
    await tried(what);
    draw();
    await sleep(ms);
  }
}

function begin(may) {
  find("changes").hidden = may !== "all";
  events.set_up(() => events.draw(facts().job?.id));
  forms.set_up(() => facts().job, wake);
  find("job").addEventListener("change", e => { location.hash = `job=${e.target.value}`; });
  addEventListener("hashchange", async () => {
    if (beside?.id === wanted_job())
      beside = null;
    await tried(fetch_picture);
    draw_now();
    await tried(fetch_curve);
    draw();
  });
  find("beside").addEventListener("change", async () => {
    await tried(fetch_beside);
    draw_now();
  });
  for (const x of document.querySelectorAll("main details"))
    x.addEventListener("toggle", () => {
      ++news;
      draw();
    });
  keep_picture();
  keep_events();
  keep(async () => {
    history = await ask("history");
    ++news;
    await fetch_curve();
  }, history_ms);
  keep(fetch_beside, beside_ms);
  keep(fetch_clusters, clusters_ms);
  keep(async () => {}, 1000); // ages go on
}

/// Asks for a token as long as it needs one.
async function enter() {
  for (let given = false; ;) {
    let may = null;
    if (await tried(async () => { ({ may } = await ask("access")); }) && may) {
      lost_since = 0;
      draw_connection();
      find("door").hidden = may !== "nothing";
      if (may !== "nothing")
        return begin(may);
      show(find("entrance-answer"), given && "This token is not good here.");
      find("token").focus();
      await new Promise(done => find("entrance").addEventListener("submit", e => {
        e.preventDefault();
        done();
      }, { once: true }));
      keep_token(find("token").value.trim());
      find("token").value = "";
      given = true;
    } else {
      lost_since ||= Date.now();
      draw_connection();
      await sleep(1000);
    }
  }
}

enter();
