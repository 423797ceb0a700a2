"""The report of a real run in headless Chromium: every control, no console error, no network request."""

import json
import re
import time
from dataclasses import replace

import numpy as np
import pytest

from joao.data.synthetic import random_graphs
from joao.data.validation import make_dataset
from joao.report.rendering import render
from tests.report.chromium import Page, program

pytestmark = pytest.mark.skipif(program() is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    page = Page(tmp_path_factory.mktemp("profile"))
    yield page
    page.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory, scored_run, open_run):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render([open_run(scored_run)]), encoding="utf-8")
    return path


@pytest.fixture
def page(browser, report):
    browser.requests.clear()
    browser.complaints.clear()
    browser.scheme("light")
    browser.open(report)
    yield browser
    assert browser.complaints == []
    assert browser.requests == [report.absolute().as_uri()]


def cells(page):
    """The numbers of the first heat map."""
    texts = page.ask("[...document.querySelector('.heat').querySelectorAll('td')].map(cell => cell.textContent)")
    return [float(text) for text in texts]


def shown_tab(page):
    return page.ask("[...document.querySelectorAll('[role=tabpanel]')].filter(p => !p.hidden).map(p => p.id)")


def test_the_slider_shows_the_table_of_its_epoch(page, scored_run):
    lines = [json.loads(line) for line in (scored_run / "metrics.jsonl").read_text().splitlines()]
    page.click("#tab-pairs")
    assert page.ask("document.getElementById('epoch').value") == "5"
    for epoch in (5, 4, 3):
        assert page.ask("document.getElementById('epoch-shown').textContent") == str(epoch)
        np.testing.assert_allclose(cells(page), np.ravel(lines[epoch - 1]["probabilities"]), atol=0.0056)
        page.ask("document.getElementById('epoch').focus()")
        page.press("ArrowLeft", 37)
    drawn = page.ask("[...document.querySelectorAll('.heat')[2].querySelectorAll('td')].map(c => +c.textContent)")
    counts = np.sum([np.ravel(line["drawn"]) for line in lines[:2]], axis=0)
    np.testing.assert_allclose(drawn, counts / counts.sum(), atol=0.0051)
    page.click("#alone")
    drawn = page.ask("[...document.querySelectorAll('.heat')[2].querySelectorAll('td')].map(c => +c.textContent)")
    np.testing.assert_allclose(drawn, np.ravel(lines[1]["drawn"]) / 188, atol=0.0051)


def test_colours_span_the_shown_epoch(page, scored_run):
    lines = [json.loads(line) for line in (scored_run / "metrics.jsonl").read_text().splitlines()]
    page.click("#tab-pairs")
    for epoch in (5, 2):
        page.ask(f"document.getElementById('epoch').value = {epoch}")
        page.ask("document.getElementById('epoch').dispatchEvent(new Event('input'))")
        shown = "[...document.querySelectorAll('.heats > div')].map(map => [map.querySelector('.scale').textContent, "
        shown += "[...map.querySelectorAll('td')].map(cell => cell.style.backgroundColor)])"
        (ends, colours), (loss_ends, _), _ = page.ask(shown)
        table = np.ravel(lines[epoch - 1]["probabilities"])
        assert ends == f"0.00{table.max():.2f}"
        assert colours[table.argmax()] == "rgb(254, 232, 56)"  # the bright end of cividis
        losses = np.ravel(lines[epoch - 1]["pair_losses"])
        shown_losses = [float(each) for each in re.findall(r"\d+\.\d\d", loss_ends)]
        np.testing.assert_allclose(shown_losses, [losses.min(), losses.max()], atol=0.0056)


def test_graphs_are_found_by_name(page):
    page.click("#tab-map")
    page.ask("document.getElementById('find').value = 'graph 18'")
    page.ask("document.getElementById('find').dispatchEvent(new Event('input'))")
    assert page.ask("document.getElementById('found').textContent") == "9 found"  # 18 and 180 to 187
    assert page.ask("document.querySelectorAll('.points path:not(.dim)').length") == 9
    page.ask("document.getElementById('find').value = ''")
    page.ask("document.getElementById('find').dispatchEvent(new Event('input'))")
    assert page.ask("document.querySelectorAll('.points .dim').length") == 0


def listed(page):
    return page.ask("[...document.querySelectorAll('details[open] strong')].map(name => name.textContent)")


def test_neighbours_of_a_chosen_graph_are_drawn(page, scored_run, open_run, mutag_data):
    neighbours = open_run(scored_run).map.neighbours

    def expected(first):
        number = int(first.removeprefix("graph "))
        return [first, *(f"graph {other}" for other in neighbours[number])]

    page.click("#tab-map")
    assert listed(page) == []
    page.ask("document.querySelector('.points').focus()")
    page.press("ArrowRight", 39)
    page.press("Enter", 13)
    chosen = page.ask("document.querySelector('#tip strong').textContent")
    names = listed(page)
    assert names == expected(chosen)
    circles = page.ask("document.querySelectorAll('details figure:nth-child(3) circle').length")
    assert circles == mutag_data[int(names[2].removeprefix("graph "))].num_nodes
    page.click("details figure:nth-child(3) button:last-child")
    assert listed(page) == expected(names[2])
    page.click("details figure:nth-child(2) button")
    assert page.ask("document.querySelector('#tip strong').textContent") == expected(names[2])[1]
    page.press("Escape", 27)
    place = "(() => { const b = document.querySelectorAll('.points path')[7].getBoundingClientRect(); "
    page.ask("document.querySelector('.points').scrollIntoView({block: 'center'})")
    x, y = page.ask(place + "return [b.left + b.width / 2, b.top + b.height / 2]; })()")
    page.move(x, y)
    page.click_at(x, y)
    clicked = page.ask("document.querySelector('#tip strong').textContent")  # another graph may have the same place
    assert listed(page) == expected(clicked)


def test_outliers_are_drawn_and_shown_on_the_map(page, scored_run, open_run):
    page.click("#tab-map")
    page.click("details:not(.neighbours) summary")
    while not page.ask("document.querySelectorAll('details strong').length"):
        time.sleep(0.05)
    names = listed(page)
    assert names == [f"graph {number}" for number in open_run(scored_run).map.outliers]
    page.click("details:not(.neighbours) button")
    assert page.ask("document.querySelector('#tip strong').textContent") == names[0]


def test_whiskers_end_at_the_deviation(page, scored_run):
    record = json.loads((scored_run / "evaluation.json").read_text())["run"]
    box = "(e => { const b = e.getBoundingClientRect(); return [b.left, b.right]; })"
    row = "document.querySelector('.bars .ours')"
    left, right = page.ask(f"{box}({row}.querySelector('.track div'))")
    low, high = page.ask(f"{box}({row}.querySelector('i'))")
    expected = [record["mean"] - record["std"], record["mean"] + record["std"]]
    np.testing.assert_allclose((np.array([low, high]) - left) / (right - left), expected, atol=0.002)


def test_missing_values_have_a_colour_outside_the_scale(browser, tmp_path, new_run, open_run):
    made = random_graphs(30, mean_nodes=6, num_classes=0, seed=1)
    values = np.where(np.arange(30) % 3 == 0, np.nan, np.arange(30.0))[:, None]
    dataset = replace(made, targets=values, target_names=("size",))
    path = tmp_path / "report.html"
    path.write_text(render([open_run(new_run(dataset), dataset)]), encoding="utf-8")
    browser.open(path)
    browser.click("#tab-map")
    drawn = "[...document.querySelectorAll('.points path')].map(p => getComputedStyle(p)).map(s => [s.fill, s.stroke])"
    found = browser.ask(drawn)
    known = [each for number, each in enumerate(found) if number % 3]
    assert len({fill for fill, _ in known}) == 20
    assert "rgb(208, 28, 139)" not in {stroke for _, stroke in known}
    assert {tuple(each) for number, each in enumerate(found) if number % 3 == 0} == {("none", "rgb(208, 28, 139)")}
    assert browser.ask("document.querySelector('.legend .scale').textContent") == "129"  # from 1 to 29
    assert "no label" in browser.ask("document.querySelector('.legend').textContent")
    parts = "[...document.querySelectorAll('.legend li, .legend .scale')]"
    assert all(browser.ask(f"{parts}.map(each => each.scrollWidth <= each.clientWidth)"))  # nothing overlaps


def test_the_address_selects_a_tab(page):
    page.click("#tab-training")
    assert page.ask("location.hash") == "#training"
    page.ask("location.hash = '#map'")
    assert shown_tab(page) == ["map"]
    page.ask("window.before = true")
    page.requests.clear()
    page.call("Page.reload")
    while not page.ask("document.readyState === 'complete' && !window.before"):
        time.sleep(0.05)
    assert shown_tab(page) == ["map"]
    page.requests[:] = [address.partition("#")[0] for address in page.requests]


def test_all_tabs_are_visible_on_a_phone(page):
    page.size(400, 800)
    rights = page.ask("[...document.getElementById('tabs').children].map(tab => tab.getBoundingClientRect().right)")
    assert max(rights) <= 400


def test_tabs_by_mouse_and_keyboard(page):
    assert shown_tab(page) == ["overview"]
    for name in ("pairs", "training", "map", "changes", "recipe"):
        page.click(f"#tab-{name}")
        assert shown_tab(page) == [name]
    page.press("ArrowRight", 39)  # from the last to the first
    assert shown_tab(page) == ["overview"]
    page.press("End", 35)
    page.press("ArrowLeft", 37)
    assert shown_tab(page) == ["changes"]
    assert page.ask("document.activeElement.id") == "tab-changes"


def test_the_point_under_the_pointer_is_described_and_drawn(page, mutag_data):
    page.click("#tab-map")
    place = "(() => { const b = document.querySelectorAll('.points path')[NUMBER].getBoundingClientRect(); "
    x, y = page.ask((place + "return [b.left + b.width / 2, b.top + b.height / 2]; })()").replace("NUMBER", "7"))
    assert page.ask("document.getElementById('tip').hidden")
    page.move(x, y)
    assert not page.ask("document.getElementById('tip').hidden")
    name = page.ask("document.querySelector('#tip strong').textContent")  # another graph may have the same place
    graph = mutag_data[int(name.removeprefix("graph "))]
    text = page.ask("document.getElementById('tip').textContent")
    assert f"class: {graph.labels[0]}" in text
    assert f"{graph.num_nodes} nodes, {graph.num_edges} edges" in text
    assert page.ask("document.querySelectorAll('#tip circle').length") == graph.num_nodes
    assert page.ask("document.querySelectorAll('#tip line').length") == graph.num_edges
    page.move(2, 2)
    assert page.ask("document.getElementById('tip').hidden")
    page.ask("document.querySelector('.points').focus()")
    page.press("ArrowRight", 39)
    first = page.ask("document.querySelector('#tip strong').textContent")
    page.press("ArrowRight", 39)
    assert page.ask("document.querySelector('#tip strong').textContent") != first
    page.press("Escape", 27)
    assert page.ask("document.getElementById('tip').hidden")


def test_positions_of_points(page, scored_run, open_run):
    page.click("#tab-map")
    boxes = "[...document.querySelectorAll('.points path')].map(p => p.getBoundingClientRect())"
    seen = np.array(page.ask(f"{boxes}.map(b => [b.left + b.width / 2, b.top + b.height / 2])"))
    places = open_run(scored_run).map.points
    scale = np.ptp(seen[:, 0]) / np.ptp(places[:, 0])
    expected = (places - places.mean(0)) * [scale, -scale]  # up is up
    np.testing.assert_allclose(seen - seen.mean(0), expected, atol=3)


def test_show_only_one_class(page, mutag_data):
    page.click("#tab-map")
    page.click(".legend button")
    dim = page.ask("document.querySelectorAll('.points .dim').length")
    assert dim == int((mutag_data.classes != 0).sum())
    page.click(".legend button")
    assert page.ask("document.querySelectorAll('.points .dim').length") == 0


def brightness(page):
    colour = page.ask("getComputedStyle(document.body).backgroundColor")
    return sum(float(each) for each in colour.removeprefix("rgb(").removesuffix(")").split(","))


def test_the_colour_scheme_follows_the_system_and_the_switch(page):
    assert brightness(page) > 600
    page.scheme("dark")
    assert brightness(page) < 150
    page.click("#scheme")
    assert (page.ask("document.getElementById('scheme').textContent"), brightness(page) > 600) == (
        "Colours: light",
        True,
    )
    page.click("#scheme")
    page.scheme("light")
    assert (page.ask("document.getElementById('scheme').textContent"), brightness(page) < 150) == (
        "Colours: dark",
        True,
    )


def test_draw_again_changes_the_drawings(page):
    page.click("#tab-changes")
    assert page.ask("document.querySelectorAll('#changes figure').length") == 6
    script = "document.querySelectorAll('#changes figure')[1].innerHTML"
    first = page.ask(script)
    page.click("#changes button")
    assert page.ask(script) != first


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(page, width):
    page.size(width, 800)
    for name in ("overview", "pairs", "training", "map", "changes", "recipe"):
        page.click(f"#tab-{name}")
        assert page.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), name


def test_graphs_are_decoded_as_encoded(page, mutag_data):
    script = (
        "Object.values(report.sets)[0].drawings.map((texts, i) => { const g = readGraph(report.sets[report.runs[0].set]"
        ".nodes[i], texts); return [g.codes.map(c => report.sets[report.runs[0].set].labels[c]), g.edges]; })"
    )
    read = page.ask(script)
    assert len(read) == 188
    for number, (labels, edges) in enumerate(read):
        graph = mutag_data[number]
        assert labels == [str(label) for label in graph.node_labels[:, 0].tolist()]
        ends = {(u, v) for u, v in zip(graph.source.tolist(), graph.target.tolist(), strict=True) if u < v}
        assert {tuple(edge) for edge in edges} == ends


def test_a_ring_is_drawn_as_a_regular_polygon(page):
    ring = [[i, (i + 1) % 6] for i in range(6)]
    places = np.array(page.ask(f"layout({{nodes: 6, edges: {ring}}})"))
    sides = np.linalg.norm(places - np.roll(places, -1, axis=0), axis=1)
    np.testing.assert_allclose(sides, sides.mean(), rtol=0.05)
    across = np.linalg.norm(places[:3] - places[3:], axis=1)
    np.testing.assert_allclose(across / sides.mean(), 2, rtol=0.1)


def test_markup_in_data_is_shown_as_text(browser, tmp_path, new_run, open_run):
    evil = "</script><script>console.error('run')</script><img src=http://localhost/x onerror=console.error(1)>"
    sizes = np.full(12, 4)
    ends = np.concatenate([4 * np.arange(12), 4 * np.arange(12) + 1]), np.concatenate([4 * np.arange(12) + 1] * 2)
    made = make_dataset(
        evil,
        sizes,
        (ends[0][:12], ends[1][:12]),
        node_labels=np.array([[evil], ["a"], ["b"], ["<b>"]] * 12),
        graph_labels=[evil, "two"] * 6,
    )
    dataset = replace(made, graph_names=(evil,) * 12)
    folder = new_run(dataset)
    path = tmp_path / "report.html"
    path.write_text(render([open_run(folder, dataset, name=evil)]), encoding="utf-8")
    browser.requests.clear()
    browser.complaints.clear()
    browser.open(path)
    browser.click("#tab-map")
    assert browser.ask("document.querySelector('.legend button').textContent") in (evil, "two")
    x, y = browser.middle(".points path")
    browser.move(x, y)
    assert browser.ask("document.querySelector('#tip strong').textContent") == evil[:32]
    assert browser.ask("document.querySelector('h3').textContent") == evil
    assert browser.ask("[document.scripts.length, document.images.length]") == [2, 0]
    assert (browser.complaints, browser.requests) == ([], [path.absolute().as_uri()])
