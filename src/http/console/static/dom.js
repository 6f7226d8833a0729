// Elements, built from text only: no markup is ever parsed, so that a name can't
// become an element.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, properties, children) {
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

/** Creates an HTML element. */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Creates an SVG element. */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Replaces the text of a node, if it differs. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets or removes an attribute, if it differs. */
export function setAttribute(node, name, value) {
  if (value === null || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Replaces the children of a node, if their key differs from the one before. */
export function replaceIfChanged(node, key, children) {
  const text = JSON.stringify(key);
  if (node.replacedKey === text) return;
  node.replacedKey = text;
  node.replaceChildren(...children());
}

/**
 * Updates a list of elements in place, so that the focus and the transitions of the
 * elements that remain are kept. `known` maps keys to parts with a `root`.
 */
export function reconcile(parent, known, items, keyOf, create, update) {
  const keys = new Set(items.map(keyOf));
  for (const [key, part] of known) {
    if (!keys.has(key)) {
      part.root.remove();
      known.delete(key);
    }
  }
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let part = known.get(key);
    if (!part) {
      part = create(item);
      known.set(key, part);
    }
    if (part.root === next) next = next.nextElementSibling;
    else parent.insertBefore(part.root, next);
    update(part, item);
  }
}
