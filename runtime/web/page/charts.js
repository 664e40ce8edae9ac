// Charts by Chart.js, each with its table. What is out of sight is not drawn.

import { h, show, table } from "./dom.js";
import { quantity, time } from "./words.js";

const { Chart } = globalThis;
const max_rows = 200;
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function use_colours() {
  Chart.defaults.color = colour("faint");
  Chart.defaults.borderColor = colour("line");
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
}

const all = new Map(); // by canvas
const sight = new IntersectionObserver(seen => seen.forEach(x => all.get(x.target).come(x.isIntersecting)));
use_colours();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  use_colours();
  all.forEach(x => x.begin_anew());
});

/// Texts above a chart where something happened, as far as there is room.
const marks = {
  id: "marks",
  afterDraw({ ctx, chartArea, scales, options }) {
    let free = -Infinity;
    ctx.font = `11px ${Chart.defaults.font.family}`;
    ctx.fillStyle = Chart.defaults.color;
    for (const { x, text } of options.marks ?? []) {
      const at = Math.max(chartArea.left, scales.x.getPixelForValue(x));
      if (at < free || at > chartArea.right - 12)
        continue;
      ctx.fillText(text, at, chartArea.top - 4);
      free = at + ctx.measureText(text).width + 8;
    }
  },
};

export class Figure {
  /// `x`: "step", "time" (ms since 1970) or "name". `series`: { name, colour, and what Chart.js knows of datasets };
  /// one that is `hidden_in_legend` only bounds another.
  constructor(figure, { title, x, y = "", type = "line", series }) {
    Object.assign(this, { title, x, y, type, series, data: series.map(() => []), marks: [] });
    this.canvas = h("canvas", { role: "img" });
    this.table = h("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": `${title}, as a table` });
    this.details = h("details", {}, h("summary", {}, "Table"), this.table);
    this.details.addEventListener("toggle", () => this.tell());
    const caption = h("figcaption", {}, title + (y && `, ${y}`));
    figure.append(caption, h("div", { class: "canvas" }, this.canvas), this.details);
    all.set(this.canvas, this);
    sight.observe(this.canvas);
  }

  /// A list of { x, y } for each series.
  set(data, marked = []) {
    this.data = data;
    this.marks = marked;
    this.stale = true;
    setTimeout(() => { // each on its own, so that nobody waits for all of them
      this.tell();
      this.draw();
    });
  }

  come(in_sight) {
    this.in_sight = in_sight;
    this.draw();
  }

  begin_anew() {
    this.chart?.destroy();
    this.chart = null;
    this.stale = true;
    this.draw();
  }

  draw() {
    if (!this.stale || !this.in_sight)
      return;
    this.stale = false;
    this.chart ??= new Chart(this.canvas, this.configuration());
    this.chart.data.datasets.forEach((x, i) => { x.data = this.data[i] ?? []; });
    if (this.x === "name")
      this.chart.data.labels = this.data[0].map(p => p.x);
    this.chart.options.marks = this.marks;
    this.chart.update("none");
  }

  text_of(x) {
    return this.x === "time" ? time(x) : `${x}`;
  }

  configuration() {
    const shown = this.series.filter(x => !x.hidden_in_legend);
    return {
      type: this.type,
      plugins: [marks],
      data: { datasets: this.series.map(({ name, colour: c, ...more }) => ({
        label: name, data: [], borderColor: colour(c), backgroundColor: colour(c) + (more.fill ? "38" : ""),
        borderWidth: 2, pointRadius: 0, pointHitRadius: 8, ...more })) },
      options: {
        animation: false, normalized: true, maintainAspectRatio: false,
        layout: { padding: { top: this.x === "time" ? 14 : 0 } },
        interaction: { mode: this.x === "name" ? "index" : "nearest", axis: "x", intersect: false },
        scales: {
          x: this.x === "name" ? { stacked: true, ticks: { maxRotation: 0 }, grid: { display: false } }
            : { type: "linear", bounds: "data",
                ticks: { callback: x => this.text_of(x), maxTicksLimit: 5, maxRotation: 0, precision: 0,
                         includeBounds: false } },
          y: { stacked: this.type === "bar", beginAtZero: this.type === "bar" || this.x === "time",
               ticks: { callback: x => quantity(x), maxTicksLimit: 6 } },
        },
        plugins: {
          legend: { display: shown.length > 1, position: "bottom", labels: { boxWidth: 18, boxHeight: 3,
                    filter: x => !this.series[x.datasetIndex].hidden_in_legend && this.data[x.datasetIndex]?.length } },
          tooltip: { callbacks: { title: x => (x.length ? this.text_of(x[0].parsed.x ?? x[0].label) : ""),
                                  label: x => `${x.dataset.label}: ${quantity(x.parsed.y)}` } },
        },
      },
    };
  }

  tell() {
    const newest = this.series.map(({ name }, i) => [name, this.data[i]?.findLast(p => p.y !== null)])
      .filter(([, p]) => p).map(([name, p]) => `${name} ${quantity(p.y)} at ${this.text_of(p.x)}`);
    const about = newest.join(", ") || "nothing yet";
    this.canvas.setAttribute("aria-label", `${this.title}: newest ${about}; all of it is in the table below`);
    if (!this.details.open)
      return;
    const rows = new Map();
    this.data.forEach((points, i) => points.forEach(p => {
      if (!rows.has(p.x))
        rows.set(p.x, this.series.map(() => "–"));
      rows.get(p.x)[i] = quantity(p.y);
    }));
    const newest_first = this.x === "name" ? [...rows].reverse() : [...rows].sort((a, b) => b[0] - a[0]);
    const caption = rows.size > max_rows ? `The newest ${max_rows} of ${rows.size}` : `${rows.size} rows`;
    show(this.table, table(caption, [this.x, ...this.series.map(x => x.name)],
      newest_first.slice(0, max_rows).map(([x, values]) => [this.text_of(x), ...values])));
  }
}
