// Shared by all parts: the data, creating elements, colours, ticks.
const report = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
const DIGIT = new Map([...ALPHABET].map((character, number) => [character, number]));

function byId(id) {
  return document.getElementById(id);
}

// Create an HTML element. Children are elements or strings; strings are inserted as text, never as markup.
function element(name, attributes = {}, ...children) {
  return fillElement(document.createElement(name), attributes, children);
}

function svgElement(name, attributes = {}, ...children) {
  return fillElement(document.createElementNS(SVG, name), attributes, children);
}

function fillElement(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function displayName(name) {
  return name.replaceAll("_", " ").replace("(strength=", " ").replace(")", "");
}

function card(run, ...children) {
  return element("article", { class: "card" }, report.runs.length > 1 ? element("h3", {}, run.name) : null, ...children);
}

function note(text) {
  return element("p", { class: "note" }, text);
}

// The colour map "cividis", safe for colour-blind readers; from 0 to 1.
const STOPS = [[0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56]];

function colourAt(share) {
  const position = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(position), STOPS.length - 2);
  return STOPS[low].map((value, i) => Math.round(value + (position - low) * (STOPS[low + 1][i] - value)));
}

function isLight([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 128;
}

function rgb(colour) {
  return `rgb(${colour.join(" ")})`;
}

// A colour bar between two numbers.
function colourScale(low, high) {
  const stops = [0, 0.25, 0.5, 0.75, 1].map((each) => rgb(colourAt(each))).join(",");
  return element("div", { class: "scale" }, String(low), element("span", { style: `background: linear-gradient(to right, ${stops})` }), String(high));
}

// About `count` tick values, with a step of 1, 2 or 5 times a power of ten.
function ticks(low, high, count = 5) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}
