// Decode a graph, compute its layout and draw it.
function readGraph(nodes, [labels, edges, bonds]) {
  const width = nodes > ALPHABET.length ? 2 : 1;
  const number = (at) => (width === 1 ? DIGIT.get(edges[at]) : DIGIT.get(edges[at]) * ALPHABET.length + DIGIT.get(edges[at + 1]));
  const pairs = [];
  for (let at = 0; at < edges.length; at += 2 * width) pairs.push([number(at), number(at + width)]);
  return {
    nodes,
    codes: [...labels].map((character) => DIGIT.get(character)),
    edges: pairs,
    bonds: bonds ? [...bonds].map((character) => DIGIT.get(character)) : null,
  };
}

// Shortest-path distances. Unconnected nodes get a distance that positions their components side by side.
function distances(graph) {
  const neighbours = Array.from({ length: graph.nodes }, () => []);
  for (const [u, v] of graph.edges) {
    neighbours[u].push(v);
    neighbours[v].push(u);
  }
  const apart = Math.max(2, Math.sqrt(graph.nodes) * 0.9);
  return neighbours.map((_, start) => {
    const steps = new Float64Array(graph.nodes).fill(Infinity);
    steps[start] = 0;
    const queue = [start];
    for (const node of queue) {
      for (const next of neighbours[node]) {
        if (steps[next] === Infinity) {
          steps[next] = steps[node] + 1;
          queue.push(next);
        }
      }
    }
    return steps.map((each) => (each === Infinity ? apart : each));
  });
}

// Positions whose distances approximate those in the graph: the stress, the sum of
// ((|x_i - x_j| - d_ij) / d_ij)^2, is minimised by stochastic gradient descent (Zheng, Pawar and Goodman, 2018).
function layout(graph) {
  const count = graph.nodes;
  if (count === 1) return [[0, 0]];
  const steps = distances(graph);
  let seed = 42;
  const random = () => (seed = (seed * 1664525 + 1013904223) % 4294967296) / 4294967296;
  const positions = Array.from({ length: count }, () => [random(), random()]);
  const pairs = [];
  let far = 1;
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < i; j++) {
      pairs.push([i, j]);
      far = Math.max(far, steps[i][j]);
    }
  }
  const rounds = count > 120 ? 20 : 60;
  for (let round = 0; round < rounds; round++) {
    const rate = far * far * (0.02 / (far * far)) ** (round / (rounds - 1));
    for (let k = pairs.length - 1; k > 0; k--) {
      const other = Math.floor(random() * (k + 1));
      [pairs[k], pairs[other]] = [pairs[other], pairs[k]];
    }
    for (const [i, j] of pairs) {
      const wanted = steps[i][j];
      const dx = positions[i][0] - positions[j][0], dy = positions[i][1] - positions[j][1];
      const length = Math.hypot(dx, dy) || 1e-6;
      const move = (Math.min(1, rate / (wanted * wanted)) * (length - wanted)) / (2 * length);
      positions[i][0] -= move * dx;
      positions[i][1] -= move * dy;
      positions[j][0] += move * dx;
      positions[j][1] += move * dy;
    }
  }
  return rotate(positions);
}

// Rotate such that the longest extent is horizontal.
function rotate(positions) {
  const mean = [0, 1].map((axis) => positions.reduce((sum, position) => sum + position[axis], 0) / positions.length);
  let xx = 0, xy = 0, yy = 0;
  for (const [x, y] of positions) {
    xx += (x - mean[0]) ** 2;
    xy += (x - mean[0]) * (y - mean[1]);
    yy += (y - mean[1]) ** 2;
  }
  const angle = 0.5 * Math.atan2(2 * xy, xx - yy), cos = Math.cos(angle), sin = Math.sin(angle);
  return positions.map(([x, y]) => [cos * (x - mean[0]) + sin * (y - mean[1]), cos * (y - mean[1]) - sin * (x - mean[0])]);
}

function fitToBox(positions, width, height, margin) {
  const low = [0, 1].map((axis) => Math.min(...positions.map((position) => position[axis])));
  const high = [0, 1].map((axis) => Math.max(...positions.map((position) => position[axis])));
  const scale = Math.min((width - 2 * margin) / (high[0] - low[0] || 1), (height - 2 * margin) / (high[1] - low[1] || 1), 34);
  const middle = [(low[0] + high[0]) / 2, (low[1] + high[1]) / 2];
  return { scale, at: positions.map(([x, y]) => [width / 2 + scale * (x - middle[0]), height / 2 + scale * (y - middle[1])]) };
}

// Draw a graph; `change` lists removed, added and masked nodes and edges.
function graphPicture(graph, positions, set, change = null, width = 200, height = 150) {
  const { at, scale } = fitToBox(positions, width, height, 12);
  const radius = Math.max(1.6, Math.min(8, scale * 0.34));
  const lost = new Set(change ? change.lost : []), masked = new Set(change ? change.masked : []);
  const cut = new Set(change ? change.cut.map(String) : []);
  const picture = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, class: "graph", "aria-hidden": "true" });
  graph.edges.forEach(([u, v], number) => {
    const gone = lost.has(u) || lost.has(v) || cut.has(String([u, v]));
    picture.append(...bondLines(at[u], at[v], gone ? 0 : graph.bonds ? graph.bonds[number] : 0, gone ? "edge gone" : "edge"));
  });
  for (const [u, v] of change ? change.added : []) picture.append(...bondLines(at[u], at[v], 0, "edge added"));
  at.forEach(([x, y], node) => {
    const code = graph.codes.length ? graph.codes[node] : -1;
    const state = lost.has(node) ? "ghost" : masked.has(node) ? "hidden-features" : "";
    const text = masked.has(node) ? "?" : code >= 0 ? set.labels[code] : "";
    picture.append(...(set.kind === "molecules" ? atomMarks(x, y, text, code, state, radius) : nodeMarks(x, y, text, code, state, radius)));
  });
  return picture;
}

function mark(name, x, y, attributes, ...children) {
  const at = name === "circle" ? { cx: x.toFixed(1), cy: y.toFixed(1) } : { x: x.toFixed(1), y: y.toFixed(1) };
  return svgElement(name, { ...at, ...attributes }, ...children);
}

// A disc in the colour of its label (grey for the most frequent one), with the label inside if it fits.
function nodeMarks(x, y, text, code, state, radius) {
  const kind = state || (code > 0 ? `c${(code - 1) % 7}` : "plain");
  const disc = mark("circle", x, y, { r: radius.toFixed(1), class: kind });
  if (!text || text.length > 2 || radius < 5 || state === "ghost") return [disc];
  const tone = state ? "on-hidden" : ["c4", "c5", "c6"].includes(kind) ? "on-light" : null;
  return [disc, mark("text", x, y, { class: tone }, text)];
}

// Skeletal formula: carbon atoms are implicit, other atoms are shown by their symbol.
function atomMarks(x, y, text, code, state, radius) {
  if (state === "ghost") return [mark("circle", x, y, { r: Math.min(radius, 5).toFixed(1), class: "ghost" })];
  if (state) return [mark("circle", x, y, { r: 5.2, class: state }), mark("text", x, y, { class: "on-hidden" }, text)];
  if (text === "C") return [mark("circle", x, y, { r: 1.8, class: "plain" })];
  return [mark("circle", x, y, { r: 5.4, class: "halo" }), mark("text", x, y, { class: `symbol c${Math.max(code - 1, 0) % 6}` }, text)];
}

// One line or, for double, triple and aromatic bonds, two, three, or one solid and one dashed.
function bondLines([x1, y1], [x2, y2], type, kind) {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const across = [-(y2 - y1) / length, (x2 - x1) / length];
  const shifts = [[0], [-1.8, 1.8], [-3, 0, 3], [-1.8, 1.8]][type] || [0];
  return shifts.map((shift, number) =>
    svgElement("line", {
      x1: (x1 + shift * across[0]).toFixed(1), y1: (y1 + shift * across[1]).toFixed(1),
      x2: (x2 + shift * across[0]).toFixed(1), y2: (y2 + shift * across[1]).toFixed(1),
      class: kind, "stroke-dasharray": type === 3 && number === 1 ? "3 2" : null,
    }),
  );
}
