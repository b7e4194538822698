"""The page of an HTML report: escaping, styles, and the script that draws the figures, in one file."""

import base64
import gzip
import html
import json
from collections.abc import Iterable, Sequence
from typing import Any


def escaped(value: Any) -> str:
    """Text for HTML, safe inside attributes too.

    Examples:
        >>> escaped('<script>"x"')
        '&lt;script&gt;&quot;x&quot;'
    """
    return html.escape(str(value), quote=True)


def plain(value: Any) -> str:
    """Text for Plotly, in which HTML tags have no effect.

    Examples:
        >>> plain("<b>a & b</b>")
        '&lt;b&gt;a &amp; b&lt;/b&gt;'
    """
    return html.escape(str(value), quote=False)


def listed(words: Sequence[str]) -> str:
    """Words in a sentence.

    Examples:
        >>> listed(["a"]), listed(["a", "b", "c"])
        ('a', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str, kind: str = "") -> str:
    """A table of escaped cells. The first cell of each row is its heading.

    Examples:
        >>> table(["a", "b"], [["<1>", "2"]], "c").count("&lt;1&gt;")
        1
    """
    top = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in head)
    top = f"<thead><tr>{top}</tr></thead>" if any(head) else ""
    body = "".join(
        f'<tr><th scope="row">{escaped(first)}</th>' + "".join(f"<td>{escaped(cell)}</td>" for cell in rest) + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(caption)}"><table class="{kind}">'
        f"<caption>{escaped(caption)}</caption>{top}<tbody>{body}</tbody></table></div>"
    )


def figure(number: int, title: str, text: str, alt: str, choices: Sequence[str], size: str, level: int = 3) -> str:
    """The element of a figure, which the script fills."""
    name = f"figure-{number}"
    menu = ""
    if len(choices) > 1:
        options = "".join(f'<option value="{i}">{escaped(choice)}</option>' for i, choice in enumerate(choices))
        menu = f'<label>Column <select data-for="{name}">{options}</select></label>'
    under = f"<figcaption>{escaped(text)}</figcaption>" if text else ""
    return (
        f'<figure class="{size}"><h{level}>{escaped(title)}</h{level}>{menu}'
        f'<div class="plot" id="{name}" role="img" aria-label="{escaped(alt)}"></div>{under}</figure>'
    )


def page(title: str, body: str, sections: Sequence[tuple[str, str]], figures: dict[str, Any], plotly: str) -> str:
    """The whole file, with Plotly and the figures inside, compressed.

    Args:
        title: the title of the page.
        body: HTML of everything below the navigation.
        sections: pairs of an anchor and a heading.
        figures: a dictionary. `figures` holds the plots of each figure, each a dictionary of data and layout; `names`,
            `tails`, and `heads` for each target are the texts of the rows.
        plotly: the source of plotly.js.

    Returns:
        HTML.

    Examples:
        >>> "<title>a &amp; b</title>" in page("a & b", "", [], {}, "")
        True
    """
    links = "".join(f'<a href="#{escaped(anchor)}">{escaped(name)}</a>' for anchor, name in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="inducing">
<link rel="icon" href="data:,">
<title>{escaped(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<nav aria-label="Sections">{links}</nav>
<main id="content">
<noscript><p class="warning">The figures need JavaScript. Tables and text are complete without it.</p></noscript>
{body}
</main>
<footer>Made with <em>inducing</em>. Figures: plotly.js, © Plotly, Inc., MIT License. This page loads nothing
from the network.</footer>
<script type="text/plain" id="packed-figures">{_packed(json.dumps(figures, allow_nan=False))}</script>
<script type="text/plain" id="packed-plotly">{_packed(plotly)}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _packed(text: str) -> str:
    """Text, compressed and in base64. Equal texts give equal results."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


STYLE = """
:root { --page: #ffffff; --card: #f5f7f9; --ink: #1b2126; --soft: #55606a; --line: #d8dee4; --accent: #0072b2;
  --warn: #fff4e0; --warn-line: #d58a00; --good: #00795a; }
@media (prefers-color-scheme: dark) { :root { --page: #14181c; --card: #1d2329; --ink: #e8ecef; --soft: #a5b0ba;
  --line: #39434d; --accent: #56b4e9; --warn: #33291a; --warn-line: #e69f00; --good: #3ccf9f; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 3.5rem; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, -apple-system,
  "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; overflow-wrap: anywhere; }
nav { position: sticky; top: 0; z-index: 20; background: var(--page); border-bottom: 1px solid var(--line);
  display: flex; gap: 1.25rem; overflow-x: auto; white-space: nowrap;
  padding: 0.7rem max(1rem, calc((100vw - 1080px) / 2)); }
nav a, a { color: var(--accent); }
nav a { text-decoration: none; font-size: 0.93rem; }
nav a:hover, nav a:focus { text-decoration: underline; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: 1rem; z-index: 30; background: var(--page); padding: 0.5rem; }
main { max-width: 1080px; margin: 0 auto; padding: 1rem 1rem 3rem; }
h1 { font-size: clamp(1.6rem, 4.5vw, 2.3rem); line-height: 1.2; margin: 1.2rem 0 0.4rem; }
h2 { font-size: 1.4rem; margin: 2.6rem 0 0.6rem; padding-top: 0.4rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 0.2rem 0 0.4rem; }
p { max-width: 46rem; margin: 0.4rem 0 0.9rem; }
.lead { font-size: 1.12rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(11.5rem, 100%), 1fr)); gap: 0.8rem;
  margin: 1.2rem 0; }
.card { background: var(--card); border-radius: 10px; padding: 0.8rem 1rem; }
.card b { display: block; font-size: 1.35rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 0.88rem; display: block; line-height: 1.4; }
.card em { font-style: normal; font-weight: 600; font-size: 0.92rem; }
.warning { background: var(--warn); border-left: 4px solid var(--warn-line); padding: 0.6rem 0.9rem; margin: 0.6rem 0;
  border-radius: 0 8px 8px 0; max-width: none; }
.warning ul { margin: 0.3rem 0; padding-left: 1.2rem; }
.figures { display: grid; grid-template-columns: repeat(6, minmax(0, 1fr)); gap: 1.6rem 1.4rem; margin: 1rem 0; }
figure, .half { margin: 0; grid-column: span 6; min-width: 0; }
@media (min-width: 720px) { .half { grid-column: span 3; } figure.small { grid-column: span 3; } }
@media (min-width: 980px) { figure.small { grid-column: span 2; } }
.plot { width: 100%; min-height: 260px; }
figcaption { color: var(--soft); font-size: 0.9rem; line-height: 1.45; max-width: 46rem; }
label { font-size: 0.92rem; color: var(--soft); display: inline-block; max-width: 100%; }
select { font: inherit; color: var(--ink); background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 0.25rem 0.5rem; margin-left: 0.3rem; max-width: 15rem; }
.scroll { overflow-x: auto; margin: 0.8rem 0 1.2rem; }
table { border-collapse: collapse; font-size: 0.95rem; font-variant-numeric: tabular-nums;
  min-width: min(100%, 30rem); }
caption { text-align: left; color: var(--soft); font-size: 0.9rem; padding-bottom: 0.4rem; }
th, td { text-align: left; padding: 0.4rem 1rem 0.4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; }
tbody th { font-weight: 600; }
th { overflow-wrap: break-word; }
table.scores tbody th { min-width: 9.5rem; }
table.scores td:nth-child(2) { font-weight: 600; }
table.scores td, table.scores thead th:not(:first-child):not(:last-child) { white-space: nowrap; }
table.scores td:last-child { color: var(--soft); white-space: normal; min-width: 13rem; }
table.facts { table-layout: fixed; width: 100%; }
table.facts caption { font-size: 0; padding: 0; }
table.facts tr > :first-child { width: 13rem; }
footer { border-top: 1px solid var(--line); color: var(--soft); font-size: 0.85rem; padding: 1rem;
  max-width: 1080px; margin: 0 auto; }
@media (max-width: 640px) { table.facts tr > :first-child { width: 36%; }
  table.scores :is(th, td) { padding-right: 0.7rem; font-size: 0.88rem; } table.scores tbody th { min-width: 6.5rem; }
  table.scores :is(th, td):last-child { display: none; } }
@media print { nav, .skip, label { display: none; } body { font-size: 11pt; } main { max-width: none; padding: 0; }
  figure, .card, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } .scroll { overflow: visible; }
  .card, .warning { border: 1px solid var(--line); } }
"""

SCRIPT = """
(async () => {
  "use strict";
  const unpack = async name => {
    const text = atob(document.getElementById(name).textContent);
    const bytes = Uint8Array.from(text, letter => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return await new Response(stream).text();
  };
  if (!window.DecompressionStream) {
    for (const place of document.querySelectorAll(".plot"))
      place.textContent = "This browser is too old to draw the figure: " + place.getAttribute("aria-label");
    return;
  }
  const { figures, names, heads, tails } = JSON.parse(await unpack("packed-figures"));
  const script = document.createElement("script");
  script.textContent = await unpack("packed-plotly");
  document.head.append(script);

  const light = { blue: [0, 114, 178], orange: [213, 128, 0], green: [0, 138, 100], red: [196, 78, 0],
    purple: [184, 92, 146], sky: [54, 150, 205], grey: [120, 128, 136], ink: "#1b2126", line: "#e3e8ec",
    page: "#ffffff" };
  const dark = { blue: [86, 180, 233], orange: [240, 175, 40], green: [40, 190, 140], red: [240, 120, 60],
    purple: [218, 145, 185], sky: [140, 205, 245], grey: [150, 160, 170], ink: "#e8ecef", line: "#2c353d",
    page: "#14181c" };
  const night = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  let theme = night.matches ? dark : light;

  const paint = value => {
    if (Array.isArray(value)) return value.map(paint);
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, paint(inner)]));
    const found = typeof value === "string" && value.match(/^@(\\w+?)(-soft)?$/);
    if (!found) return value;
    if (found[1] === "scale") return [[0, theme.page], [1, `rgb(${theme.blue})`]];
    const colour = theme[found[1]];
    return colour ? (found[2] ? `rgba(${colour}, 0.25)` : `rgb(${colour})`) : value;
  };
  const chosen = figures.map(() => 0);
  const draw = number => {
    const place = document.getElementById(`figure-${number}`);
    const { data, layout } = figures[number][chosen[number]];
    const narrow = place.clientWidth < 480;
    const axis = given => ({ gridcolor: theme.line, zerolinecolor: theme.line, linecolor: theme.line, automargin: true,
      ...given, title: { ...given?.title, standoff: 8 } });
    const whole = { height: 400, hovermode: "closest", dragmode: coarse ? false : "zoom", ...layout,
      xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
      font: { family: "system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif", size: 13, color: theme.ink },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 52, r: 14, t: 8, b: 44 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: narrow ? 11 : 12 },
        ...layout.legend },
      hoverlabel: { align: "left", bgcolor: theme.page, bordercolor: theme.ink,
        font: { color: theme.ink, size: 13 } } };
    const config = { displaylogo: false, responsive: true, displayModeBar: false };
    // texts were escaped when they were written; paint only replaces names of colours
    return Plotly.react(place, paintTraces(data), whole, config);
  };
  // colours occur only under these keys, so that a value of a table such as "@blue" is not replaced
  const KEYS = ["line", "marker", "fillcolor", "error_x", "error_y", "colorscale", "colorbar"];
  const paintTraces = traces => traces.map(({ rows, target, ...trace }) => ({
    ...Object.fromEntries(Object.entries(trace).map(
      ([key, value]) => [key, KEYS.includes(key) ? paint(value) : value])),
    ...(rows && { hovertext: rows.map(row => [names[row], heads[target][row], tails[row]].join("<br>")) }) }));
  const drawAll = async () => { for (const number of figures.keys()) await draw(number); };

  await drawAll();
  for (const menu of document.querySelectorAll("select[data-for]"))
    menu.addEventListener("change", () => {
      const number = Number(menu.dataset.for.split("-")[1]);
      chosen[number] = Number(menu.value);
      draw(number);
    });
  night.addEventListener("change", () => { theme = night.matches ? dark : light; drawAll(); });
  addEventListener("beforeprint", () => { theme = light; drawAll(); });
  addEventListener("afterprint", () => { theme = night.matches ? dark : light; drawAll(); });
  document.documentElement.dataset.drawn = "yes";
})();
"""
