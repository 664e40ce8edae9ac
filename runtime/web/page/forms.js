// What can be changed: as the commands do it.

import { Refusal, change } from "./api.js";
import { find, h, show } from "./dom.js";

const pressed = new Set(); // what is being done: not twice

/// Does it, says what came of it, and looks at once.
async function carry_out(name, what, look) {
  if (pressed.has(name))
    return;
  pressed.add(name);
  show(find("answer"), h("p", {}, `${name} …`));
  try {
    show(find("answer"), h("p", {}, `${name}: `, await what()));
  } catch (e) {
    const why = e instanceof Refusal ? e.message : "no answer came; look whether it was done";
    show(find("answer"), h("p", { class: "bad", role: "alert" }, `${name}: ${why}`));
  }
  pressed.delete(name);
  look();
}

function sure(question) {
  const box = find("sure");
  show(find("sure-text"), question);
  box.showModal();
  return new Promise(done => { // by what happens at once: "close" of the question before may still be under way
    box.querySelector("form").onsubmit = x => done(x.submitter.value === "yes");
    box.oncancel = () => done(false);
  });
}

async function submitted(only_check) {
  const query = new URLSearchParams({ priority: find("priority").value || "0" });
  if (find("name").value)
    query.set("name", find("name").value);
  if (only_check)
    query.set("check", "");
  const x = await change(`jobs?${query}`, find("text").value, "application/toml");
  if (!only_check)
    return `it is job ${x.job}`;
  const lines = [x.obstacle || "it can run", ...x.before.map(y => `after ${y}`), ...x.problems, ...x.unknown];
  return h("ul", {}, lines.map(y => h("li", {}, y)));
}

async function preempted() {
  const names = [...find("victims").selectedOptions].map(x => x.value);
  const which = names.length ? { names } : { any: Number(find("any").value), seed: Math.floor(Math.random() * 1e9) };
  const body = JSON.stringify({ ...which, notice: find("notice").value.trim() });
  const x = await change("preempt", body, "application/json");
  return `${x.names.join(", ")} will go`;
}

/// `job`: gives the one that is shown; `look`: fetches what is new.
export function set_up(job, look) {
  find("checkpoint").addEventListener("click", () => {
    const { id } = job();
    carry_out("Checkpoint", async () => `asked for, of job ${(await change(`jobs/${id}/checkpoint`)).job}`, look);
  });
  find("cancel").addEventListener("click", async () => {
    const { id, name } = job();
    if (await sure(`Cancel job ${id} ${name}? It can be resumed from its newest checkpoint.`))
      carry_out("Cancel", async () => `job ${(await change(`jobs/${id}/cancel`)).job} is cancelled`, look);
  });
  find("preempt").addEventListener("submit", async e => {
    e.preventDefault();
    const chosen = find("victims").selectedOptions.length;
    if (await sure(`Preempt ${chosen || find("any").value} of the instances?`))
      carry_out("Preempt", preempted, look);
  });
  find("submit").addEventListener("submit", e => {
    e.preventDefault();
    const only_check = e.submitter?.value === "check";
    carry_out(only_check ? "Check" : "Submit", () => submitted(only_check), look);
  });
  find("file").addEventListener("change", async e => {
    const file = e.target.files[0];
    if (file)
      find("text").value = await file.text();
  });
}

export function draw({ status, job }) {
  const can = job && (job.state === "running" || job.state === "queued");
  find("checkpoint").disabled = !(job?.state === "running");
  find("cancel").disabled = !can;
  show(find("victims"), status.instances.filter(x => x.role === "worker" && x.state === "alive")
    .map(x => h("option", { value: x.name }, x.name)));
}
