// Curves over epochs, of all runs in one picture.
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

function lineChart(title, unit, series) {
  const narrow = innerWidth < 560, width = narrow ? 340 : 560, height = narrow ? 240 : 300, left = 46, right = 14, top = 12, bottom = 38;
  const xs = series.flatMap((each) => each.x), ys = series.flatMap((each) => each.y);
  const xLow = Math.min(...xs), xHigh = Math.max(...xs);
  let yLow = Math.min(...ys), yHigh = Math.max(...ys);
  const room = (yHigh - yLow || Math.abs(yHigh) || 1) * 0.06;
  yLow -= room;
  yHigh += room;
  const px = (x) => left + ((x - xLow) / (xHigh - xLow || 1)) * (width - left - right);
  const py = (y) => height - bottom - ((y - yLow) / (yHigh - yLow)) * (height - top - bottom);
  const last = series.map((each) => `${each.name}: ${each.y[each.y.length - 1]}`).join("; ");
  const chart = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": `${title} by epoch. At the end, ${last}` });
  for (const y of ticks(yLow, yHigh)) {
    chart.append(drawn("line", { x1: left, x2: width - right, y1: py(y), y2: py(y), class: "grid" }), drawn("text", { x: left - 6, y: py(y) + 4, "text-anchor": "end" }, String(y)));
  }
  for (const x of ticks(xLow, xHigh, 8).filter(Number.isInteger)) chart.append(drawn("text", { x: px(x), y: height - bottom + 18, "text-anchor": "middle" }, String(x)));
  chart.append(drawn("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, "epoch"));
  series.forEach((each, number) => {
    const points = each.x.map((x, i) => `${px(x).toFixed(1)},${py(each.y[i]).toFixed(1)}`);
    chart.append(points.length > 1
      ? drawn("polyline", { points: points.join(" "), class: `series s${number % 8}`, "stroke-dasharray": DASHES[Math.floor(number / 2) % 4] || null })
      : drawn("circle", { cx: px(each.x[0]), cy: py(each.y[0]), r: 4, class: `c${number % 8}` }));
  });
  const cursor = drawn("line", { y1: top, y2: height - bottom, class: "cursor", visibility: "hidden" });
  const told = made("p", { class: "note" }, unit);
  chart.append(cursor);
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const wanted = xLow + ((((event.clientX - box.left) / box.width) * width - left) / (width - left - right)) * (xHigh - xLow);
    const nearest = series.map((each) => each.x.reduce((best, x, i) => (Math.abs(x - wanted) < Math.abs(each.x[best] - wanted) ? i : best), 0));
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", px(series[0].x[nearest[0]]));
    cursor.setAttribute("x2", px(series[0].x[nearest[0]]));
    told.textContent = series.map((each, i) => `${series.length > 1 ? `${each.name}, ` : ""}epoch ${each.x[nearest[i]]}: ${each.y[nearest[i]]}`).join("; ");
  });
  chart.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    told.textContent = unit;
  });
  return made("article", { class: "card" }, made("h3", {}, title), chart, told, series.length > 1 ? lineLegend(series) : null);
}

function lineLegend(series) {
  const items = series.map((each, number) => {
    const dash = DASHES[Math.floor(number / 2) % 4] || null;
    const line = drawn("svg", { width: 28, height: 10, "aria-hidden": "true" }, drawn("line", { x1: 1, x2: 27, y1: 5, y2: 5, class: `s${number % 8}`, "stroke-width": 3, "stroke-dasharray": dash }));
    return made("li", {}, made("span", {}, line, each.name));
  });
  return made("ul", { class: "legend" }, ...items);
}

function startCurves() {
  const holder = byId("training-charts");
  const trained = report.runs.filter((run) => run.epochs.length);
  if (!trained.length) return holder.append(made("article", { class: "card" }, note("No epoch has been recorded.")));
  const of = (key, runs) => runs.map((run) => ({ name: run.name, x: run.epochs, y: run[key] }));
  holder.append(lineChart("Loss", "Mean over the graphs of each epoch.", of("loss", trained)));
  const choosing = trained.filter((run) => run.pool.length > 1);
  if (choosing.length) {
    const most = Math.max(...choosing.map((run) => run.pool.length ** 2));
    holder.append(lineChart("Pairs in effect", `exp(entropy) of the probabilities: ${most} is the uniform law${choosing.length > 1 ? " of the largest pool" : ""}, 1 a single pair.`, of("pairs", choosing)));
  }
  return undefined;
}
