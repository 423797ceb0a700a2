// Heat maps over pairs of augmentations, with a slider over epochs.
const SCALE = 1000;

// Sum (or average) over the strengths of each augmentation.
function overStrengths(run, values, mean) {
  const size = run.pool.length, groups = run.groups.length;
  const sums = new Array(groups * groups).fill(0), counts = new Array(groups * groups).fill(0);
  values.forEach((value, index) => {
    const cell = run.group[Math.floor(index / size)] * groups + run.group[index % size];
    sums[cell] += value;
    counts[cell] += 1;
  });
  return mean ? sums.map((sum, cell) => sum / counts[cell]) : sums;
}

function shares(counts) {
  const total = counts.reduce((sum, each) => sum + each, 0) || 1;
  return counts.map((each) => each / total);
}

function sumTables(tables) {
  return tables.reduce((sum, table) => sum.map((each, index) => each + table[index]), new Array(tables[0].length).fill(0));
}

// The kinds of heat map: title, values at a shown epoch, and number format.
function kindsOf(run, wholePool, alone) {
  const tables = run.tables;
  const view = (values, mean = false) => (wholePool ? values : overStrengths(run, values, mean));
  const kinds = [
    { title: "Probability", under: "of the next pair", at: (i) => view(tables.probabilities[i]).map((each) => each / SCALE), fromZero: true },
    {
      title: "Share drawn", under: alone ? "since the previous table" : "of all graphs so far",
      at: (i) => shares(view(sumTables(tables.drawn.slice(alone ? i : 0, i + 1)))), fromZero: true,
    },
  ];
  if (tables.losses) {
    const under = wholePool || run.pool.length === run.groups.length ? "last measured; pairs with higher loss gain probability" : "mean over strengths";
    kinds.splice(1, 0, { title: "Pair loss", under, at: (i) => view(tables.losses[i], true).map((each) => each / SCALE), fromZero: false });
  }
  return kinds;
}

function heatMap(kind, names) {
  const dense = names.length > 8;
  const cells = [];
  const body = names.map((name) => {
    const row = element("tr", {}, element("th", { scope: "row" }, displayName(name)));
    for (const second of names) {
      const cell = element("td", {});
      cell.pair = `${displayName(name)} + ${displayName(second)}`;
      cells.push(cell);
      row.append(cell);
    }
    return row;
  });
  const head = element("tr", {}, element("th", {}, "first \\ second"), ...names.map((name) => element("th", { scope: "col" }, displayName(name))));
  const table = element("table", { class: dense ? "heat dense" : "heat" },
    element("caption", {}, kind.title, element("span", { class: "quiet" }, kind.under)), element("thead", {}, head), element("tbody", {}, ...body));
  const scale = element("div", {});
  const holder = element("div", {}, element("div", { class: "scroll" }, table), scale);
  // The colours span the values of the shown epoch, as in the exported figure.
  const show = (values) => {
    const high = Math.max(...values), low = kind.fromZero ? 0 : Math.min(...values), digits = high < 0.1 ? 3 : 2;
    scale.replaceChildren(colourScale(low.toFixed(digits), high.toFixed(digits)));
    cells.forEach((cell, index) => {
      const colour = colourAt(high > low ? (values[index] - low) / (high - low) : 0);
      cell.style.backgroundColor = rgb(colour);
      cell.style.color = isLight(colour) ? "#000" : "#fff";
      cell.textContent = values[index] === 0 ? "0" : values[index].toFixed(digits);
      cell.title = `${cell.pair}: ${values[index].toFixed(3)}`;
    });
  };
  return { holder, show };
}

function buildPairs(run) {
  const heats = element("div", { class: "heats" });
  const caption = element("p", { class: "note" });
  let kinds = [], maps = [];
  const rebuild = (wholePool, alone) => {
    kinds = kindsOf(run, wholePool, alone);
    maps = kinds.map((kind) => heatMap(kind, wholePool ? run.pool : run.groups));
    heats.className = wholePool && run.pool.length > 8 ? "heats large" : "heats";
    heats.replaceChildren(...maps.map((map) => map.holder));
  };
  const show = (epoch) => {
    const epochs = run.tables.epochs;
    let i = epochs.length - 1;
    while (i > 0 && epochs[i] > epoch) i--;
    kinds.forEach((kind, number) => maps[number].show(kind.at(i)));
    const few = epochs.length < epochs[epochs.length - 1] ? ` This page contains the tables of ${epochs.length} of ${epochs[epochs.length - 1]} epochs.` : "";
    caption.textContent = `After epoch ${epochs[i]}. Rows: first view; columns: second view.${few}`;
  };
  return { element: card(run, heats, caption), rebuild, show };
}

function startPairs() {
  const holder = byId("pairs-runs"), slider = byId("epoch"), play = byId("play");
  const shown = report.runs.filter((run) => run.pool.length > 1 && run.tables.epochs.length).map(buildPairs);
  for (const run of report.runs) {
    if (run.pool.length < 2) holder.append(card(run, note("The method uses graphs without augmentation; there are no pairs to choose from.")));
    else if (!run.tables.epochs.length) holder.append(card(run, note("No epoch has finished yet.")));
  }
  holder.prepend(...shown.map((each) => each.element));
  if (!shown.length) return;
  byId("pairs-controls").hidden = false;
  byId("members-label").hidden = report.runs.every((run) => run.pool.length === run.groups.length);
  slider.max = Math.max(...report.runs.flatMap((run) => run.tables.epochs));
  slider.value = slider.max;
  const update = () => {
    byId("epoch-shown").textContent = slider.value;
    for (const each of shown) each.show(Number(slider.value));
  };
  const rebuild = () => {
    for (const each of shown) each.rebuild(byId("members").checked, byId("alone").checked);
    update();
  };
  slider.addEventListener("input", update);
  byId("members").addEventListener("change", rebuild);
  byId("alone").addEventListener("change", rebuild);
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  };
  play.addEventListener("click", () => {
    if (timer) return stop();
    if (slider.value === slider.max) slider.value = slider.min;
    play.textContent = "Stop";
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      update();
      if (slider.value === slider.max) stop();
    }, Math.max(40, Math.min(250, 6000 / Number(slider.max))));
    return update();
  });
  rebuild();
}
