// Of several clusters each at a glance, and a way to it; nothing where there is one.

import { ask } from "./api.js";
import { find, h, show } from "./dom.js";
import { state_of } from "./sections.js";
import { time, whole } from "./words.js";

const own = location.pathname.match(/\/clusters\/([^/]+)\/$/)?.[1];
const root = own ? "../../" : "";

function job_of({ up, why, since_wall_us, job }) {
  if (!up)
    return since_wall_us ? `away since ${time(since_wall_us / 1000)}: ${why}` : why;
  return job ? `${job.name} ${whole(job.steps_done)} / ${whole(job.steps)}` : "no job yet";
}

function badge_of({ up, job }) {
  if (!up)
    return ["away", "bad"];
  return job ? state_of(job) : ["idle", "warning"];
}

/// `shown`: its name, or undefined: the first.
function card(x, shown) {
  const [state, how] = badge_of(x);
  return h("li", {}, h("a", { href: `${root}clusters/${x.name}/`, "aria-current": shown && "page" },
    h("b", {}, x.name), h("span", { class: `badge ${how}` }, state),
    h("small", {}, `${x.slots} ${x.slots === 1 ? "slot" : "slots"}, ${job_of(x)}`)));
}

export async function fetch_clusters() {
  const all = await ask("clusters");
  find("clusters").hidden = all.length < 2;
  show(find("clusters").firstElementChild, all.map((x, i) => card(x, own ? x.name === own : i === 0)));
}
