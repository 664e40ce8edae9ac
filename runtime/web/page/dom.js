// Elements from plain values; what is shown comes from jobs and nodes, so it is text, never HTML.

export const find = id => document.getElementById(id);

/// h("td", { class: "x" }, "text", h("b", {}, 1)); an attribute that is false or null is left out.
export function h(tag, attributes = {}, ...children) {
  const result = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== false && value !== null && value !== undefined)
      result.setAttribute(name, value === true ? "" : value);
  result.append(...children.flat().filter(x => x !== null && x !== undefined && x !== false));
  return result;
}

/// Makes `parent` have these children with the fewest changes: focus and selection stay where they are.
export function show(parent, ...children) {
  const wanted = children.flat().filter(x => x !== null && x !== undefined && x !== false)
    .map(x => (x instanceof Node ? x : document.createTextNode(x)));
  while (parent.childNodes.length > wanted.length)
    parent.lastChild.remove();
  wanted.forEach((x, i) => {
    const there = parent.childNodes[i];
    if (!there)
      parent.append(x);
    else if (!become(there, x))
      there.replaceWith(x);
  });
}

function become(there, wanted) {
  if (there.nodeType !== wanted.nodeType || there.nodeName !== wanted.nodeName)
    return false;
  if (there.nodeType === Node.TEXT_NODE) {
    if (there.data !== wanted.data)
      there.data = wanted.data;
    return true;
  }
  for (const x of [...there.attributes])
    if (!wanted.hasAttribute(x.name) && x.name !== "open") // the reader opened it
      there.removeAttribute(x.name);
  for (const x of wanted.attributes)
    if (there.getAttribute(x.name) !== x.value)
      there.setAttribute(x.name, x.value);
  show(there, ...wanted.childNodes);
  return true;
}

/// Makes these very elements the children of `parent`; those that are there already stay untouched.
export function arrange(parent, elements) {
  const wanted = new Set(elements);
  [...parent.children].forEach(x => wanted.has(x) || x.remove());
  let at = parent.firstElementChild;
  for (const x of elements)
    if (x === at)
      at = at.nextElementSibling;
    else
      parent.insertBefore(x, at);
}

/// `columns`: names; rows: lists of texts or nodes, the first heads its row.
export function table(caption, columns, rows) {
  return h("table", {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, columns.map(x => h("th", { scope: "col" }, x)))),
    h("tbody", {}, rows.map(row => h("tr", {}, row.map((x, i) => h(i ? "td" : "th", i ? {} : { scope: "row" }, x))))));
}
