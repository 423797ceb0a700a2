// Tabs and colour scheme; then start all parts.
function startTabs() {
  const tabs = [...byId("tabs").children];
  const choose = (tab) => {
    for (const each of tabs) {
      const isChosen = each === tab;
      each.setAttribute("aria-selected", String(isChosen));
      each.tabIndex = isChosen ? 0 : -1;
      byId(each.getAttribute("aria-controls")).hidden = !isChosen;
    }
    history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
    hideTip();
  };
  tabs.forEach((tab, number) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const target = { ArrowLeft: number - 1, ArrowRight: number + 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (target === undefined) return;
      event.preventDefault();
      const next = tabs[(target + tabs.length) % tabs.length];
      next.focus();
      choose(next);
    });
  });
  // report.html#map opens the map.
  const follow = () => {
    const named = tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
    if (named) choose(named);
  };
  window.addEventListener("hashchange", follow);
  follow();
}

function startScheme() {
  const schemes = ["system", "light", "dark"];
  byId("scheme").addEventListener("click", () => {
    const now = document.documentElement.dataset.scheme || "system";
    const next = schemes[(schemes.indexOf(now) + 1) % schemes.length];
    document.documentElement.dataset.scheme = next;
    byId("scheme").textContent = `Colours: ${next}`;
  });
}

startTabs();
startScheme();
startPairs();
startCurves();
startMaps();
startChanges();
