// What is asked of the server that this page came from.

const place = "parcae-token"; // of this tab, until it is closed

export const keep_token = x => sessionStorage.setItem(place, x);

function headers() {
  const token = sessionStorage.getItem(place);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

export class Refusal extends Error {
  constructor(status, line) {
    super(line);
    this.status = status;
  }
}

async function answer(path, options = {}) {
  const reply = await fetch(`api/v1/${path}`, { ...options, headers: { ...headers(), ...options.headers } });
  if (reply.ok)
    return reply;
  const line = await reply.json().then(x => x.error, () => reply.statusText);
  throw new Refusal(reply.status, line);
}

/// The answer's JSON. Throws Refusal, or what fetch throws when nobody answers.
export const ask = async path => (await answer(path, { signal: AbortSignal.timeout(20000) })).json();

export const change = async (path, body = "", type = "text/plain") =>
  (await answer(path, { method: "POST", body, headers: { "Content-Type": type }, signal: AbortSignal.timeout(60000) }))
    .json();

/// Tells each event, until the stream ends. `after`: id of the last one known.
export async function follow(after, signal, tell) {
  const reply = await answer("events", { signal, headers: after ? { "Last-Event-ID": after } : {} });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done)
      return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const fields = Object.fromEntries(part.split("\n").map(line => line.match(/^(.*?): ?(.*)$/).slice(1)));
      if (fields.data)
        tell({ id: fields.id, kind: fields.event, data: JSON.parse(fields.data) });
    }
  }
}
