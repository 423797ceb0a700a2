// Curves over epochs, with all runs in one chart.
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
  const chart = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": `${title} by epoch. Last values: ${last}` });
  for (const y of ticks(yLow, yHigh)) {
    chart.append(svgElement("line", { x1: left, x2: width - right, y1: py(y), y2: py(y), class: "grid" }), svgElement("text", { x: left - 6, y: py(y) + 4, "text-anchor": "end" }, String(y)));
  }
  for (const x of ticks(xLow, xHigh, 8).filter(Number.isInteger)) chart.append(svgElement("text", { x: px(x), y: height - bottom + 18, "text-anchor": "middle" }, String(x)));
  chart.append(svgElement("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, "epoch"));
  series.forEach((each, number) => {
    const points = each.x.map((x, i) => `${px(x).toFixed(1)},${py(each.y[i]).toFixed(1)}`);
    chart.append(points.length > 1
      ? svgElement("polyline", { points: points.join(" "), class: `series s${number % 8}`, "stroke-dasharray": DASHES[Math.floor(number / 2) % 4] || null })
      : svgElement("circle", { cx: px(each.x[0]), cy: py(each.y[0]), r: 4, class: `c${number % 8}` }));
  });
  const cursor = svgElement("line", { y1: top, y2: height - bottom, class: "cursor", visibility: "hidden" });
  const caption = element("p", { class: "note" }, unit);
  chart.append(cursor);
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const wanted = xLow + ((((event.clientX - box.left) / box.width) * width - left) / (width - left - right)) * (xHigh - xLow);
    const nearest = series.map((each) => each.x.reduce((best, x, i) => (Math.abs(x - wanted) < Math.abs(each.x[best] - wanted) ? i : best), 0));
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x1", px(series[0].x[nearest[0]]));
    cursor.setAttribute("x2", px(series[0].x[nearest[0]]));
    caption.textContent = series.map((each, i) => `${series.length > 1 ? `${each.name}, ` : ""}epoch ${each.x[nearest[i]]}: ${each.y[nearest[i]]}`).join("; ");
  });
  chart.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    caption.textContent = unit;
  });
  return element("article", { class: "card" }, element("h3", {}, title), chart, caption, series.length > 1 ? lineLegend(series) : null);
}

function lineLegend(series) {
  const items = series.map((each, number) => {
    const dash = DASHES[Math.floor(number / 2) % 4] || null;
    const line = svgElement("svg", { width: 28, height: 10, "aria-hidden": "true" }, svgElement("line", { x1: 1, x2: 27, y1: 5, y2: 5, class: `s${number % 8}`, "stroke-width": 3, "stroke-dasharray": dash }));
    return element("li", {}, element("span", {}, line, each.name));
  });
  return element("ul", { class: "legend" }, ...items);
}

function startCurves() {
  const holder = byId("training-charts");
  const trained = report.runs.filter((run) => run.epochs.length);
  if (!trained.length) return holder.append(element("article", { class: "card" }, note("No epoch has finished yet.")));
  const of = (key, runs) => runs.map((run) => ({ name: run.name, x: run.epochs, y: run[key] }));
  holder.append(lineChart("Loss", "Mean loss over the graphs of each epoch.", of("loss", trained)));
  const choosing = trained.filter((run) => run.pool.length > 1);
  if (choosing.length) {
    const most = Math.max(...choosing.map((run) => run.pool.length ** 2));
    holder.append(lineChart("Effective number of pairs", `exp(entropy) of the probabilities: ${most} if uniform${choosing.length > 1 ? " over the largest pool" : ""}, 1 if all on one pair.`, of("pairs", choosing)));
  }
  return undefined;
}
