// The same graph under each augmentation.
function told(change, graph) {
  const parts = [];
  const some = (count, what) => count && parts.push(`${count} ${what}${count > 1 ? "s" : ""}`);
  some(change.lost.length, "node");
  some(change.cut.length, "edge");
  const lost = parts.length ? `${parts.join(" and ")} removed` : "";
  const more = [lost, change.added.length ? `${change.added.length} edge${change.added.length > 1 ? "s" : ""} added` : "", change.masked.length ? `${change.masked.length} of ${graph.nodes} nodes masked` : ""];
  return more.filter(Boolean).join(", ") || "nothing changes";
}

function changesOf(run) {
  if (!run.examples.length) return card(run, note(run.why.changes || "No graph is fit to be drawn."));
  const set = report.sets[run.set], colouring = set.colourings[0] || null;
  const select = made("select", { "aria-label": "Graph" }), another = made("button", { type: "button" }, "Draw again");
  run.examples.forEach((example, number) => {
    const label = colouring ? `, ${labelOf(colouring, example.graph)}` : "";
    select.append(made("option", { value: number }, `${graphName(set, example.graph)}${label} (${example.nodes} nodes)`));
  });
  const place = made("div", { class: "drawings" });
  let draw = 0;
  const show = () => {
    const example = run.examples[Number(select.value)];
    const graph = readGraph(example.nodes, example.drawing), places = layout(graph);
    const picture = (change, name, words) => made("figure", {}, graphPicture(graph, places, set, change), made("figcaption", {}, made("strong", {}, name), made("br"), made("span", { class: "quiet" }, words)));
    place.replaceChildren(
      picture(null, "before", "as it is"),
      ...example.members.map((member) => {
        const change = member.draws[draw % member.draws.length];
        return picture(change, words(member.name), told(change, graph));
      }),
    );
  };
  select.addEventListener("change", show);
  another.addEventListener("click", () => {
    draw += 1;
    show();
  });
  show();
  const legend = note("Dashed: removed. Orange lines: added. Dark nodes with ?: features masked. Places are those of the graph before.");
  return card(run, made("div", { class: "controls" }, select, another), place, legend);
}

function startChanges() {
  byId("changes-runs").append(...report.runs.map(changesOf));
}
