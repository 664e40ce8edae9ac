// The parts of the page, each from the same facts: { status, job, now_us, wall_ms(at_us), old }.

import { Figure } from "./charts.js";
import { find, h, show, table } from "./dom.js";
import { departures } from "./events.js";
import { age, counted, duration, kinds, number, quantity, time, whole } from "./words.js";

const max_names = 20;
const is_over = job => job.state !== "running" && job.state !== "queued";
const listed = names => (names.length <= max_names ? names.join(", ")
  : `${names.slice(0, max_names).join(", ")} and ${names.length - max_names} more`);
const terms = (to, pairs) =>
  show(to, pairs.filter(Boolean).map(([name, ...value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
const small = text => h("small", {}, text);
const finite = x => (Number.isFinite(x) ? x : null);

// --- does it train?

export const serves = job => job?.kind === "serve";

/// How it is, in a word, and whether that is good.
export function state_of(job) {
  if (job.state === "running" && job.phase !== "running")
    return [job.phase, "warning"];
  return [job.state, { failed: "bad", queued: "warning", cancelled: "warning" }[job.state] ?? "good"];
}

export function trains({ status, job }) {
  if (!job) {
    show(find("sentence"), "There is no job yet; submit one: ", h("code", {}, "parcae submit JOB.toml"));
    [find("progress"), find("figures"), find("warnings")].forEach(x => show(x));
    return;
  }
  const [state, how] = state_of(job);
  const where = job.width ? ` on ${job.width}×${job.depth} slots` : "";
  show(find("sentence"), h("span", { class: `badge ${how}` }, state), `job ${job.id} ${job.name}${where}`,
    job.problem && `: ${job.problem}`);
  document.body.classList.toggle("serves", serves(job));
  show(find("trains"), serves(job) ? "Does it answer?" : "Does it train?");
  if (serves(job))
    return answers(status, job);
  const share = job.steps ? Math.floor(1000 * job.steps_done / job.steps) / 10 : 0;
  show(find("progress"),
    h("progress", { max: Math.max(1, job.steps), value: job.steps_done, "aria-label": `${share} % of the steps` }));
  const copies = `${job.copies} ${job.copies === 1 ? "copy" : "copies"}`;
  terms(find("figures"), [
    ["Step", `${whole(job.steps_done)} / ${whole(job.steps)}`, small(`${share} %`)],
    ["Time left", job.state === "running" && job.time_left_ms >= 0 ? age(job.time_left_ms) : "–"],
    ["Loss", number(job.loss), small(job.loss_steps >= 0 ? `of step ${whole(job.loss_steps)}` : "none yet")],
    job.evaluated_steps >= 0 &&
      ["Validation loss", number(job.validation_loss), small(`of step ${whole(job.evaluated_steps)}`)],
    ["Samples/s", quantity(job.samples_per_s), small(job.step_ms > 0 ? `${duration(job.step_ms)} a step` : "")],
    ["Generation", `${job.generation}`],
    ["Protected", `step ${whole(job.protected_steps)}`, small(job.protected_now ? copies : "not now")],
    ["Checkpoint", job.checkpoint_steps ? `step ${whole(job.checkpoint_steps)}` : "none yet"],
  ]);
  const { copies_problem, not_on_disk, checkpoint_problem, transport } = job;
  const waits = job.data_wait_for && job.data_wait_ms > 0.01 * job.step_ms &&
    `${duration(job.data_wait_ms)} of a step pass waiting for data: ${job.data_wait_for}`;
  show(find("warnings"), [status.warning, copies_problem, not_on_disk, checkpoint_problem, waits, transport.reason]
    .filter(Boolean).map(x => h("p", {}, x)));
}

function answers(status, job) {
  const { requests: x, gateway, http } = job;
  const wait = y => [duration(y.p50_ms), small(`99 % within ${duration(y.p99_ms)}`)];
  show(find("progress"));
  terms(find("figures"), [
    ["Answers at", http || "no gateway", small(gateway)],
    ["Tokens/s", quantity(x.tokens_per_s), small(`${quantity(x.arrivals_per_s)} requests/s`)],
    ["Requests", `${whole(x.running)} running`, small(`${whole(x.queued)} queued`)],
    ["First token", ...wait(x.first_token)],
    ["Between tokens", ...wait(x.between_tokens)],
    ["Answered", whole(x.answered), small(`${whole(x.refused)} refused, ${whole(x.failed)} failed`)],
    ["Computed again", counted(x.recomputed, "position")],
    ["Generation", `${job.generation}`],
  ]);
  show(find("warnings"), [status.warning, job.gateway_problem].filter(Boolean).map(y => h("p", {}, y)));
}

// --- what is there?

function mark_of(x, facts) {
  if (!x || x.state === "lost")
    return ["lost", "bad"];
  const ms = (facts.now_us - facts.status.now_us) / 1000;
  if (x.state === "leaving")
    return [`notice: ${age(x.expires_in_ms - ms)} left`, "warning"];
  return x.warning ? ["at risk", "warning"] : [age(x.age_ms + ms), ""];
}

export function there(facts) {
  const { status, job } = facts;
  const by_life = new Map(status.instances.map(x => [`${x.name} ${x.incarnation}`, x]));
  const instance_of = (slot, life) => by_life.get(`${slot.slice(0, slot.lastIndexOf("/"))} ${life}`);
  const placed = new Set(status.jobs.flatMap(x => // also of a job that is not the one that is shown
    x.grid.flatMap((pipeline, d) => pipeline.map((slot, p) => instance_of(slot, x.grid_incarnations[d]?.[p])))));
  const cell = (slot, life) => {
    const [mark, how] = mark_of(instance_of(slot, life), facts);
    return h("td", { class: how }, slot, small(mark));
  };
  const rows = (job?.grid ?? []).map((pipeline, d) =>
    h("tr", {}, h("th", { scope: "row" }, `Pipeline ${d}`),
      pipeline.map((slot, p) => cell(slot, job.grid_incarnations[d]?.[p]))));
  show(find("grid"), rows.length ? h("table", {},
    h("thead", {}, h("tr", {}, h("td", {}), job.grid[0].map((_, p) => h("th", { scope: "col" }, `Stage ${p}`)))),
    h("tbody", {}, rows)) : h("p", {}, "No slot is in use."));
  const here = status.instances.filter(x => x.state !== "lost");
  const spares = here.filter(x => x.role === "worker" && !placed.has(x)).map(x => {
    const [mark, how] = mark_of(x, facts);
    return how ? `${x.name} (${mark})` : x.name;
  });
  const gateways = here.filter(x => x.role === "gateway").map(x => `${x.name}, ${mark_of(x, facts)[0]}`);
  const risks = here.filter(x => x.warning).map(x => `${x.name}: ${x.warning}`);
  const keepers = here.filter(x => x.role === "keeper").map(x => {
    const held = job?.keepers.find(k => k.keeper === x.name);
    const what = held ? `step ${held.steps}, ${held.layers} of ${job.layers} layers` : "nothing yet";
    return `${x.name}: ${what}, ${mark_of(x, facts)[0]}`;
  });
  terms(find("others"), [
    ["Spares", listed(spares) || "none"],
    ["Keepers", listed(keepers) || "none"],
    gateways.length > 0 && ["Gateways", listed(gateways)],
    risks.length > 0 && ["Warnings", listed(risks)],
  ]);
  const box = find("instances");
  if (box.open)
    show(box.lastElementChild, table(counted(status.instances.length, "instance"),
      ["Name", "Role", "State", "Slots", "Address", "Processor"], status.instances.map(x =>
        [x.name, x.role, h("span", {}, x.state, small(`${mark_of(x, facts)[0]} ${x.warning}`)), `${x.slots}`,
         `${x.host}:${x.port}`, x.processor])));
}

// --- what was lost?

const phases = [
  ["planned_ms", "planned", "sky"], ["prepared_ms", "prepared", "blue"], ["stopped_ms", "stopped", "purple"],
  ["ready_ms", "moved", "orange"], ["active_ms", "begun", "red"], ["first_commit_ms", "first commit", "faint"]];
const max_changes = 30;

// Moments from the change's start to durations: what did not happen took no time.
function durations(change) {
  let until = 0;
  return phases.map(([name]) => {
    const lasts = Math.max(0, change[name] - until);
    until = Math.max(until, change[name]);
    return lasts;
  });
}

export const stalled_ms = job => job.changes.reduce((sum, x) => sum + Math.max(0, x.stall_ms), 0);

/// What part of the time since the oldest change that is known the job trained: not the stalls since then, nor the steps
/// that were computed again.
export function trained_share({ status, job }) {
  if (!job.changes.length)
    return NaN;
  const end_us = is_over(job) ? job.events.at(-1)?.at_us ?? status.now_us : status.now_us;
  const all_ms = (end_us - job.changes[0].at_us) / 1000;
  const last = job.changes.at(-1);
  const replayed = job.changes.reduce((sum, x) => sum + x.replayed_steps, 0);
  const waits_ms = job.phase === "waiting" && last.stall_ms < 0 ? (status.now_us - last.at_us) / 1000 : 0;
  return Math.min(1, Math.max(0, 1 - (stalled_ms(job) + replayed * job.step_ms + waits_ms) / all_ms));
}

let stalls;
export function lost(facts) {
  const { job } = facts;
  const gone = departures();
  const share = job ? trained_share(facts) : NaN;
  const by_kind = Object.entries(kinds).filter(([kind]) => job?.migrations[kind])
    .map(([kind, name]) => `${job.migrations[kind]} ${name}`);
  terms(find("losses"), [
    ["Preemptions", `${gone.noticed} + ${gone.unnoticed}`, small(
      `with notice + without${gone.since ? `, since ${time(gone.since)}` : ""}`)],
    ["Changes", `${job?.change_count ?? 0}`, small(by_kind.join(", "))],
    ["Stalls", job ? duration(stalled_ms(job)) : "–", small(
      job?.change_count > job?.changes.length ? `of the newest ${job.changes.length} changes` : "in all")],
    !serves(job) && ["Replayed", counted(job?.replayed_steps ?? 0, "step")],
    [serves(job) ? "Time answering" : "Time trained", Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : "–"],
  ]);
  stalls ??= new Figure(find("stalls"), {
    title: "What the newest changes took that waited for nobody", x: "name", y: "ms by phase", type: "bar",
    series: [...phases.map(([, name, colour]) => ({ name, colour, borderWidth: 0 })),
             { name: "nobody trained", colour: "text", type: "line", showLine: false, pointRadius: 4,
               pointStyle: "rectRot", stack: "stall", order: -1 }] });
  const newest = (job?.changes ?? []).filter(x => !x.waited).slice(-max_changes);
  const of_each = newest.map(durations);
  const names = newest.map(x => `→${x.to}`);
  stalls.set([...phases.map((_, i) => of_each.map((x, k) => ({ x: names[k], y: x[i] }))),
              newest.map((x, k) => ({ x: names[k], y: x.stall_ms < 0 ? null : x.stall_ms }))]);
}

// --- what will be?

/// Between two decisions at an interval's end; 0: not known.
function interval_ms(decisions) {
  const ends = decisions.filter(x => x.trigger === "the planning interval's end").map(x => x.at_us / 1000);
  return ends.slice(1).reduce((least, x, i) => (least ? Math.min(least, x - ends[i]) : x - ends[i]), 0);
}

let availability;
export function will({ job, history, wall_ms }) {
  const decisions = job?.decisions ?? [];
  const last = decisions.at(-1);
  show(find("plan"), last ? last.reason : "Nothing is decided yet.", job?.idle && h("br"), job?.idle);
  availability ??= new Figure(find("availability"), { title: "Slots", x: "time", series: [
    { name: "forecast, 10 %", colour: "orange", borderWidth: 1, hidden_in_legend: true },
    { name: "forecast, 10 to 90 %", colour: "orange", borderWidth: 1, fill: "-1" },
    { name: "expected", colour: "orange", borderDash: [4, 3] },
    { name: "there", colour: "blue", stepped: "before" },
    { name: "used", colour: "purple", borderDash: [2, 2], stepped: "before" }] });
  const past = history.wall_us.map((x, i) => ({ x: x / 1000, i }));
  const seen = name => past.map(({ x, i }) => ({ x, y: history[name][i] }));
  const forecast = name => past.map(({ x, i }) => ({ x, y: history.forecast_mean[i] < 0 ? null : history[name][i] }));
  const lasts = interval_ms(decisions);
  const running = job && !is_over(job);
  const to_come = lasts && running ? last.forecast : [];
  const coming = name => to_come.map((x, i) => ({ x: wall_ms(last.at_us) + (i + 1) * lasts, y: x[name] }));
  const begin = past[0]?.x ?? 0;
  const chosen = (job?.changes ?? []).map(x => ({ x: wall_ms(x.at_us), text: x.configuration }))
    .filter(x => x.x >= begin);
  availability.set([[...forecast("forecast_low"), ...coming("low")], [...forecast("forecast_high"), ...coming("high")],
                    [...forecast("forecast_mean"), ...coming("mean")], seen("slots"), seen("used")], chosen);
  let box = find("decisions");
  if (box.open)
    show(box.lastElementChild, table("The newest first", ["When", "Chosen", "Why", "Stall expected", "was"],
      decisions.slice(-50).reverse().map(x =>
        [time(wall_ms(x.at_us)), x.chosen.configuration, `${x.trigger}: ${x.reason}`,
         x.generation ? duration(x.expected_ms) : "–", duration(x.realised_ms)])));
  box = find("configurations");
  if (box.open)
    show(box.lastElementChild, table("That the planner last chose from",
      ["D×P", "Samples/s", "with 95 % in", "Measured"], (job?.configurations ?? []).map(x =>
        [`${x.width}×${x.depth}`, quantity(x.samples_per_s),
         `${quantity(x.low_samples_per_s)} to ${quantity(x.high_samples_per_s)}`,
         x.steps ? counted(x.steps, "step") : "not yet"])));
}

// --- where does a step's time go?

const step_parts = [
  ["forward", "sky"], ["backward", "blue"], ["recompute", "yellow"], ["pipeline", "orange"], ["transfer", "red"],
  ["reduction", "purple"], ["data", "text"], ["exchange", "green"], ["snapshot", "brown"], ["optimizer", "faint"],
  ["other", "line"], ["core", "slate"]];
const max_slots = 32;

let parts;
export function spent({ job }) {
  const times = job?.step_times ?? [];
  const more = times.length > max_slots ? ` The first ${max_slots} of ${times.length} slots.` : "";
  show(find("slowest"), times.length
    ? `Slowest is ${job.slowest_slot}, which waits least for others.${more}` : "Nobody has told of a step yet.");
  parts ??= new Figure(find("parts"), { title: "A step of each slot, by what it is spent on", x: "name", y: "ms",
    type: "bar", series: step_parts.map(([name, colour]) => ({ name, colour, borderWidth: 0 })) });
  const shown = times.slice(0, max_slots);
  parts.set(step_parts.map(([name]) => shown.map(x => ({ x: x.slot, y: x[`${name}_ms`] }))));
}

// --- curves

let loss, others;
/// `curve` and `beside`: { id, records, validation_losses } of this job and another, or null. What came since: the job
/// and the history. Of the version before the first step only the job tells.
export function curves({ job, history, curve, beside }) {
  loss ??= new Figure(find("loss"), { title: "Loss", x: "step", series: [
    { name: "training", colour: "blue" }, { name: "validation", colour: "orange", borderDash: [6, 3] },
    { name: "beside it", colour: "green", borderDash: [2, 2] }] });
  others ??= [["norm", "Gradient norm", "step", "gradient_norm"], ["rate", "Learning rate", "step", "learning_rate"],
              ["speed", "Samples/s", "time", "samples_per_s"]].map(([id, title, x, field]) =>
    [new Figure(find(id), { title, x, series: [{ name: title.toLowerCase(), colour: "blue" }] }), field]);
  const known = curve?.id === job?.id ? curve : null;
  const records = known?.records ?? [], evaluated = known?.validation_losses ?? [];
  const newest = records.at(-1)?.steps ?? 0, newest_evaluated = evaluated.at(-1)?.steps ?? 0;
  const points = (list, field = "loss") => (list ?? []).map(p => ({ x: p.steps, y: finite(p[field]) }));
  const told = job?.validation_losses ?? [];
  loss.set([points([...records, ...(job?.losses ?? []).filter(p => p.steps > newest)]),
            points([...told.filter(p => p.steps === 0), ...evaluated, ...told.filter(p => p.steps > newest_evaluated)]),
            points(beside?.records)]);
  const mine = history.wall_us.map((_, i) => i).filter(i => history.job[i] === job?.id);
  for (const [figure, name] of others) {
    const of_time = figure.x === "time";
    const since = of_time ? mine : mine.filter(i => history.steps[i] > newest);
    figure.set([[...(of_time ? [] : points(records, name)), ...since.map(i => ({
      x: of_time ? history.wall_us[i] / 1000 : history.steps[i], y: finite(history[name][i]) }))]]);
  }
}
