// The map of the embeddings; shows the graph under the pointer.
const SHAPES = [
  (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  (x, y, r) => `M${x - r * 0.9} ${y - r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}z`,
  (x, y, r) => `M${x} ${y - r * 1.2}L${x + r * 1.15} ${y + r * 0.9}H${x - r * 1.15}z`,
  (x, y, r) => `M${x} ${y - r * 1.3}L${x + r * 1.3} ${y}L${x} ${y + r * 1.3}L${x - r * 1.3} ${y}z`,
  (x, y, r) => `M${x} ${y + r * 1.2}L${x + r * 1.15} ${y - r * 0.9}H${x - r * 1.15}z`,
  (x, y, r) => `M${x - r * 1.2} ${y - r * 0.4}h${r * 0.8}v${-r * 0.8}h${r * 0.8}v${r * 0.8}h${r * 0.8}v${r * 0.8}h${-r * 0.8}v${r * 0.8}h${-r * 0.8}v${-r * 0.8}h${-r * 0.8}z`,
];
const layouts = new Map();

function shapeOf(code) {
  return SHAPES[code < 0 ? 0 : (code + Math.floor(code / 8)) % SHAPES.length];
}

function classOf(code) {
  return code < 0 ? "cn" : `c${code % 8}`;
}

function graphName(set, point) {
  if (set.names && set.names[point]) return set.names[point];
  return `graph ${set.numbers ? set.numbers[point] : point}`;
}

function labelOf(colouring, point) {
  if (!colouring) return "";
  if (colouring.values) return `${colouring.name}: ${colouring.values[point] ?? "no label"}`;
  return `${colouring.name}: ${colouring.codes[point] < 0 ? "no label" : colouring.classes[colouring.codes[point]]}`;
}

function tipContent(set, fingerprint, colouring, point) {
  const lines = [element("p", {}, element("strong", {}, graphName(set, point)))];
  if (colouring) lines.push(element("p", {}, labelOf(colouring, point)));
  lines.push(element("p", { class: "quiet" }, `${set.nodes[point]} nodes, ${set.edges[point]} edges`));
  if (set.smiles && set.smiles[point]) lines.push(element("p", { class: "quiet" }, set.smiles[point].slice(0, 90)));
  const texts = set.drawings[point];
  if (!texts) return [...lines, element("p", { class: "quiet" }, "not drawn (see the note below the map)")];
  const graph = readGraph(set.nodes[point], texts), key = `${fingerprint} ${point}`;
  if (!layouts.has(key)) layouts.set(key, layout(graph));
  return [graphPicture(graph, layouts.get(key), set), ...lines];
}

function buildMap(run) {
  if (!run.map) return { element: card(run, note(run.why.map || "No map.")), colour: () => {}, find: () => 0 };
  const set = report.sets[run.set], xs = run.map.x, ys = run.map.y, margin = 26, count = xs.length;
  const tall = Math.max(300, Math.min(1000, Math.max(...ys)));
  const rise = (tall - Math.max(...ys)) / 2;
  const px = xs.map((x) => x + margin), py = ys.map((y) => tall - rise - y + margin);
  const radius = (count > 2500 ? 4.5 : count > 600 ? 6 : 8) * (innerWidth < 560 ? 2 : 1);
  const svg = svgElement("svg", { viewBox: `0 0 ${1000 + 2 * margin} ${tall + 2 * margin}`, class: "points", tabindex: 0, role: "application", "aria-label": `Map of ${count} embeddings of ${run.name}. Use the arrow keys to move between graphs and Escape to leave.` });
  const points = xs.map(() => svgElement("path", {}));
  const ring = svgElement("circle", { r: radius + 5, class: "chosen", visibility: "hidden" });
  svg.append(...points, ring);
  const legend = element("ul", { class: "legend" });
  const notes = [`${run.map.axes}.`];
  if (run.map.note) notes.unshift(run.map.note);
  if (set.numbers) notes.push(`A sample of ${count.toLocaleString("en")} of ${set.total.toLocaleString("en")} graphs.`);
  if (set.drawn < count) notes.push(`To keep this file small, only ${set.drawn.toLocaleString("en")} of them have drawings.`);
  let colouring = null, chosen = -1, kept = -1, wanted = "";

  const shown = (i) => (kept < 0 || colouring.codes[i] === kept) && (!wanted || isFound(set, i, wanted));
  const dim = () => points.forEach((point, i) => point.classList.toggle("dim", !shown(i)));
  // Show only the graphs whose name contains the text; returns their number.
  const find = (text) => {
    wanted = text.trim().toLowerCase();
    dim();
    return wanted ? xs.filter((_, i) => isFound(set, i, wanted)).length : 0;
  };
  const colour = (which) => {
    colouring = set.colourings[which] || null;
    kept = -1;
    const values = colouring && colouring.values ? colouring.values.filter((each) => each !== null) : [];
    const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    points.forEach((point, i) => {
      const code = colouring && colouring.codes ? colouring.codes[i] : -1;
      point.setAttribute("d", shapeOf(code)(px[i], py[i], radius));
      const value = colouring && colouring.values ? colouring.values[i] : null;
      point.setAttribute("class", !colouring ? "c0" : value === null ? classOf(code) : "cv");
      if (value === null) point.removeAttribute("style");
      else point.setAttribute("style", `fill: ${rgb(colourAt((value - low) / (high - low || 1)))}`);
    });
    dim();
    lists.forEach((list) => list.refresh());
    legend.replaceChildren(...legendItems(colouring, low, high, (code, buttons) => {
      kept = kept === code ? -1 : code;
      buttons.forEach(([other, button]) => button.setAttribute("aria-pressed", String(other === kept)));
      dim();
    }));
  };
  const choose = (point, left, top) => {
    chosen = point;
    ring.setAttribute("cx", px[point]);
    ring.setAttribute("cy", py[point]);
    ring.setAttribute("visibility", "visible");
    showTip(tipContent(set, run.set, colouring, point), left, top);
  };
  const leave = () => {
    ring.setAttribute("visibility", "hidden");
    hideTip();
  };
  const nearest = (x, y, allowed) => {
    let best = -1, least = Infinity;
    for (let i = 0; i < count; i++) {
      if (!allowed(i)) continue;
      const distance = (px[i] - x) ** 2 + (py[i] - y) ** 2;
      if (distance < least) [best, least] = [i, distance];
    }
    return [best, Math.sqrt(least)];
  };
  const pointer = (event) => {
    const matrix = svg.getScreenCTM();
    const [point, distance] = nearest((event.clientX - matrix.e) / matrix.a, (event.clientY - matrix.f) / matrix.d, shown);
    if (point < 0 || distance * matrix.a > 28) leave();
    else if (point !== chosen || byId("tip").hidden) choose(point, event.clientX, event.clientY);
    else placeTip(event.clientX, event.clientY);
  };
  const atPoint = (point) => {
    const matrix = svg.getScreenCTM();
    choose(point, matrix.e + px[point] * matrix.a, matrix.f + py[point] * matrix.d);
  };
  const drawn = (point) => {
    const button = element("button", { type: "button" }, "On the map");
    button.addEventListener("click", () => {
      svg.scrollIntoView({ block: "center" });
      atPoint(point);
    });
    const figure = element("figure", {}, ...tipContent(set, run.set, colouring, point), button);
    if (near) {
      const other = element("button", { type: "button" }, "Neighbours");
      other.addEventListener("click", () => {
        near.show(point);
        near.element.scrollIntoView({ block: "nearest" });
      });
      figure.append(" ", other);
    }
    return figure;
  };
  const near = neighbourList(run, set, count, drawn), outliers = outlierList(run, drawn);
  svg.addEventListener("click", () => near && !byId("tip").hidden && near.show(chosen));
  svg.addEventListener("pointermove", pointer);
  svg.addEventListener("pointerdown", pointer);
  svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && leave());
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Escape") leave();
    if (event.key === "Enter" && near && chosen >= 0) near.show(chosen);
    if (!way) return;
    event.preventDefault();
    if (chosen < 0) return atPoint(nearest(500, tall / 2, shown)[0]);
    const ahead = (i) => {
      const along = (px[i] - px[chosen]) * way[0] + (py[i] - py[chosen]) * way[1];
      const aside = Math.abs((px[i] - px[chosen]) * way[1] + (py[i] - py[chosen]) * way[0]);
      return i !== chosen && along > 0 && aside <= along && shown(i);
    };
    const [next] = nearest(px[chosen], py[chosen], ahead);
    return next >= 0 ? atPoint(next) : undefined;
  });
  const lists = [near, outliers].filter(Boolean);
  return { element: card(run, svg, legend, note(notes.join(" ")), ...lists.map((list) => list.element)), colour, find };
}

function isFound(set, point, wanted) {
  return graphName(set, point).toLowerCase().includes(wanted) || Boolean(set.smiles && set.smiles[point].toLowerCase().includes(wanted));
}

// The graphs that are farthest from their nearest neighbours, drawn when the list is opened.
function outlierList(run, drawn) {
  if (!run.map.outliers.length) return null;
  const drawings = element("div", { class: "drawings" });
  const list = element("details", {}, element("summary", {}, `Outliers: the ${run.map.outliers.length} graphs that are farthest from their nearest neighbours`), drawings);
  const refresh = () => list.open && drawings.replaceChildren(...run.map.outliers.map(drawn));
  list.addEventListener("toggle", refresh);
  return { element: list, refresh };
}

// A chosen graph and its nearest neighbours among the embeddings, the nearest first; null if they are not known.
function neighbourList(run, set, count, drawn) {
  if (!run.map.neighbours) return null;
  const width = count > ALPHABET.length ** 2 ? 3 : count > ALPHABET.length ? 2 : 1, each = run.map.neighbours.length / count;
  const number = (text) => [...text].reduce((sum, character) => sum * ALPHABET.length + DIGIT.get(character), 0);
  const title = element("summary", {}, "Nearest neighbours: choose a graph");
  const drawings = element("div", { class: "drawings" }, note("Click a graph on the map or, with the arrow keys, choose one and press Enter."));
  const list = element("details", { class: "neighbours" }, title, drawings);
  let chosen = -1;
  const show = (point) => {
    chosen = point;
    const own = run.map.neighbours.slice(point * each, (point + 1) * each);
    const found = Array.from({ length: each / width }, (_, rank) => number(own.slice(rank * width, (rank + 1) * width)));
    title.replaceChildren(`Nearest neighbours of ${graphName(set, point)}, the nearest first`);
    drawings.replaceChildren(...[point, ...found].map(drawn));
    drawings.firstElementChild.classList.add("chosen-graph");
    list.open = true;
  };
  return { element: list, show, refresh: () => list.open && chosen >= 0 && show(chosen) };
}

function legendItems(colouring, low, high, keep) {
  if (!colouring) return [element("li", {}, element("span", {}, "The graphs have no labels."))];
  if (colouring.values) {
    const items = [element("li", {}, element("span", {}, `${colouring.name}:`, colourScale(low, high)))];
    return colouring.values.includes(null) ? [...items, element("li", {}, element("span", {}, legendMark(-1), "no label"))] : items;
  }
  const codes = colouring.classes.map((_, code) => code).concat(colouring.codes.includes(-1) ? [-1] : []);
  const buttons = [];
  return codes.map((code) => {
    const button = element("button", { type: "button", "aria-pressed": "false", title: "Show only this class" }, legendMark(code), code < 0 ? "no label" : colouring.classes[code]);
    buttons.push([code, button]);
    button.addEventListener("click", () => keep(code, buttons));
    return element("li", {}, button);
  });
}

function legendMark(code) {
  return svgElement("svg", { width: 16, height: 16, "aria-hidden": "true" }, svgElement("path", { d: shapeOf(code)(8, 8, 5.5), class: classOf(code) }));
}

function showTip(children, left, top) {
  byId("tip").replaceChildren(...children);
  byId("tip").hidden = false;
  placeTip(left, top);
}

function placeTip(left, top) {
  const tip = byId("tip"), box = tip.getBoundingClientRect(), room = 14;
  const x = left + room + box.width < innerWidth ? left + room : Math.max(4, left - room - box.width);
  const y = Math.min(Math.max(4, top - box.height / 2), innerHeight - box.height - 4);
  tip.style.left = `${x}px`;
  tip.style.top = `${y}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}

function startMaps() {
  const maps = report.runs.map(buildMap);
  byId("map-runs").append(...maps.map((map) => map.element));
  const select = byId("colouring");
  const names = [...new Set(Object.values(report.sets).flatMap((set) => set.colourings.map((each) => each.name)))];
  names.forEach((name, number) => select.append(element("option", { value: number }, name)));
  byId("map-controls").hidden = report.runs.every((run) => !run.map);
  byId("colouring-label").hidden = Object.values(report.sets).every((set) => set.colourings.length < 2);
  byId("find").addEventListener("input", (event) => {
    const counts = maps.map((map) => map.find(event.target.value));
    byId("found").textContent = event.target.value.trim() ? `${Math.max(...counts).toLocaleString("en")} found` : "";
  });
  const colour = () => maps.forEach((map, number) => {
    const set = report.sets[report.runs[number].set];
    map.colour(set ? Math.max(0, set.colourings.findIndex((each) => each.name === names[Number(select.value)])) : 0);
  });
  select.addEventListener("change", colour);
  colour();
}
