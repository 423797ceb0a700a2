// One graph before and after each augmentation.
function describeChange(change, graph) {
  const parts = [];
  const add = (count, what) => count && parts.push(`${count} ${what}${count > 1 ? "s" : ""}`);
  add(change.lost.length, "node");
  add(change.cut.length, "edge");
  const lost = parts.length ? `${parts.join(" and ")} removed` : "";
  const more = [lost, change.added.length ? `${change.added.length} edge${change.added.length > 1 ? "s" : ""} added` : "", change.masked.length ? `${change.masked.length} of ${graph.nodes} nodes masked` : ""];
  return more.filter(Boolean).join(", ") || "no change";
}

function buildChanges(run) {
  if (!run.examples.length) return card(run, note(run.why.changes || "No graph is small enough to draw."));
  const set = report.sets[run.set], colouring = set.colourings[0] || null;
  const select = element("select", { "aria-label": "Graph" }), another = element("button", { type: "button" }, "Draw again");
  run.examples.forEach((example, number) => {
    const label = colouring ? `, ${labelOf(colouring, example.graph)}` : "";
    select.append(element("option", { value: number }, `${graphName(set, example.graph)}${label} (${example.nodes} nodes)`));
  });
  const drawings = element("div", { class: "drawings" });
  let draw = 0;
  const show = () => {
    const example = run.examples[Number(select.value)];
    const graph = readGraph(example.nodes, example.drawing), positions = layout(graph);
    const picture = (change, name, text) => element("figure", {}, graphPicture(graph, positions, set, change), element("figcaption", {}, element("strong", {}, name), element("br"), element("span", { class: "quiet" }, text)));
    drawings.replaceChildren(
      picture(null, "original", "not augmented"),
      ...example.members.map((member) => {
        const change = member.draws[draw % member.draws.length];
        return picture(change, displayName(member.name), describeChange(change, graph));
      }),
    );
  };
  select.addEventListener("change", show);
  another.addEventListener("click", () => {
    draw += 1;
    show();
  });
  show();
  const legend = note("Dashed: removed. Orange lines: added edges. Dark nodes with ?: masked features. All drawings use the layout of the original graph.");
  return card(run, element("div", { class: "controls" }, select, another), drawings, legend);
}

function startChanges() {
  byId("changes-runs").append(...report.runs.map(buildChanges));
}
