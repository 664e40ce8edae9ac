// Figures as people read them; all of it text.

export const number = (x, digits = 4) => (Number.isFinite(x) ? x.toFixed(digits) : "–");
export const whole = x => x.toLocaleString("en");
export const counted = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

/// Three digits: 1.23, 45.6, 789, 12.3 k.
export function quantity(x) {
  if (!Number.isFinite(x))
    return "–";
  if (x !== 0 && Math.abs(x) < 0.01)
    return x.toExponential(2);
  const power = Math.abs(x) < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(Math.abs(x)) / 3));
  const text = Number((x / 1000 ** power).toPrecision(3)).toString();
  return power ? `${text} ${" kMGT"[power]}` : text;
}

export function duration(ms) {
  if (!(ms >= 0))
    return "–";
  if (ms < 1000)
    return `${Math.round(ms)} ms`;
  if (ms < 10000)
    return `${(ms / 1000).toFixed(1)} s`;
  return age(ms);
}

export function age(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60)
    return `${s} s`;
  if (s < 3600)
    return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400)
    return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

/// Times are the reader's.
const digits = "2-digit";
const clock = new Intl.DateTimeFormat(undefined, { hour: digits, minute: digits, second: digits, hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
export function time(wall_ms, with_day = Math.abs(Date.now() - wall_ms) > 43200000) {
  return (with_day ? `${day.format(wall_ms)} ` : "") + clock.format(wall_ms);
}

export const kinds = { none: "in place", intra_stage: "intra-stage", inter_stage: "inter-stage", pipeline: "pipeline" };
