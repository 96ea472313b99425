"""How `report.html` looks: readable at any width, in light and dark, and on paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1d2430; --dim: #566072; --line: #dde2ea; --tint: #f4f6f9; --page: #ffffff; --accent: #0069a8;
  --warn-ink: #7a1d00; --warn: #fff0e8; --warn-line: #d55e00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e4e8ef; --dim: #a4afc0; --line: #333c4a; --tint: #1f2630; --page: #151a21; --accent: #6cb8ec;
    --warn-ink: #ffc9ab; --warn: #3a2015; --warn-line: #e8833e;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .75rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .6rem; padding-bottom: .3rem; border-bottom: 2px solid var(--accent); }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; overflow-wrap: anywhere; }
p, li { max-width: 85ch; overflow-wrap: anywhere; }
ul { padding-left: 1.2rem; }
li { margin: .3rem 0; }
a { color: var(--accent); }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1rem; font-size: .9rem; }
small { color: var(--dim); font-size: .78rem; font-weight: 400; }
code { background: var(--tint); padding: .05rem .3rem; border-radius: 4px; font-size: .86em; overflow-wrap: anywhere; }
pre { background: var(--tint); padding: .75rem; border-radius: 8px; overflow-x: auto; font-size: .8rem; line-height: 1.4; }
.fine { margin: -.75rem 0 1.75rem; color: var(--dim); font-size: .85rem; }
.fine p, .fine li { max-width: 115ch; }
.fine p { margin: 0 0 .3rem; }
.problem { color: var(--warn-ink); }
.notes { list-style: none; padding: .75rem 1rem; background: var(--tint); border-radius: 8px; }
.banner { margin: 1rem 0; padding: .75rem 1rem; border: 2px solid var(--warn-line); border-radius: 8px;
  background: var(--warn); color: var(--warn-ink); }
.banner p { margin: 0; }
.banner ul { margin: .3rem 0 0; }
.good { border-left: 4px solid var(--accent); padding-left: .75rem; }
dl { display: grid; grid-template-columns: minmax(8rem, max-content) 1fr; gap: .45rem 1.25rem; margin: .75rem 0; }
dt { font-weight: 600; }
dd { margin: 0; max-width: 85ch; overflow-wrap: anywhere; }
dd ul { margin: .2rem 0; }
dl.facts { margin: .2rem 0 .5rem; gap: .1rem 1rem; grid-template-columns: minmax(6rem, max-content) 1fr; font-size: .9rem; }
dl.facts dt { font-weight: 400; color: var(--dim); }
#short { margin-bottom: 1.5rem; }
#short dd > ul:first-child { margin-top: 0; }
#short dd li { margin: .1rem 0; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.scroll { position: relative; overflow-x: auto; margin: .75rem 0 1.25rem; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--dim); padding-bottom: .35rem; }
th, td { padding: .45rem .55rem; text-align: right; vertical-align: top; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th small, td small { display: block; line-height: 1.35; }
thead th { background: var(--tint); font-size: .86rem; line-height: 1.3; white-space: normal; vertical-align: bottom; }
tbody th, thead th:first-child { text-align: left; }
tbody th { font-weight: 600; white-space: normal; min-width: 6.5rem; max-width: 15rem; overflow-wrap: anywhere; }
table.metrics tbody th, table.metrics thead th:first-child { position: sticky; left: 0; background: var(--page); }
table.metrics thead th:first-child { background: var(--tint); }
table.metrics td .value { font-size: 1.02rem; }
b.value { font-weight: 700; }
u.value { text-decoration: underline; text-underline-offset: .18em; }
thead th.words { text-align: left; }
tr.apart td { text-align: left; color: var(--dim); font-size: .82rem; padding-top: .9rem; }
td.words { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 8rem; }
table.clips { font-size: .84rem; }
table.clips th, table.clips td { padding: .4rem .3rem; }
table.clips tbody th { min-width: 9rem; }
table.clips td.words { min-width: 5rem; }
table.clips td:last-child { min-width: 9.5rem; }
table.clips button { white-space: nowrap; }
table.clips thead th { position: sticky; top: 0; z-index: 1; }
@media screen and (min-width: 641px) {
  /* Whatever is wider than the window scrolls below the flags. */
  table.clips td:last-child { position: sticky; right: 0; background: var(--page); }
  table.clips thead th:last-child { right: 0; z-index: 2; }
}
table.clips thead th:nth-child(-n+2), table.clips thead th:last-child { text-align: left; }
.long { max-height: 36rem; overflow-y: auto; }
thead button { all: unset; cursor: pointer; font-weight: 600; }
thead button:focus-visible { outline: 2px solid var(--accent); }
thead button::after { content: " ↕"; color: var(--dim); font-weight: 400; }
th[aria-sort="ascending"] button::after { content: " ↑"; }
th[aria-sort="descending"] button::after { content: " ↓"; }
.controls { display: flex; flex-wrap: wrap; gap: .5rem 1.25rem; align-items: center; font-size: .9rem; }
.controls[hidden] { display: none; }
.controls label { display: flex; flex-wrap: wrap; align-items: center; gap: .3rem; min-width: 0; max-width: 100%; }
.controls input, .controls select { font: inherit; color: inherit; background: var(--page); border: 1px solid var(--dim);
  border-radius: 6px; padding: .25rem .4rem; max-width: 100%; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 1.25rem;
  align-items: start; grid-auto-flow: dense; }
figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; padding: .75rem; min-width: 0; }
figure.wide { grid-column: 1 / -1; }
figure img, figure video { max-width: 100%; height: auto; display: block; margin: 0 auto; background: #fff;
  border-radius: 4px; }
figcaption { color: var(--dim); font-size: .9rem; padding-top: .5rem; overflow-wrap: anywhere; }
details { margin: .4rem 0; }
summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
@media (max-width: 640px) {
  body { font-size: 15px; }
  main { padding: 1.25rem .75rem 3rem; }
  dl { grid-template-columns: 1fr; gap: .1rem; }
  dd { margin-bottom: .6rem; }
  tbody th { min-width: 7.5rem; max-width: 9rem; }
}
@media print {
  :root { --ink: #000; --dim: #444; --line: #bbb; --tint: #f2f2f2; --page: #fff; --accent: #0069a8;
    --warn-ink: #7a1d00; --warn: #fff; }
  main { max-width: none; padding: 0; }
  nav, .controls { display: none; }
  .scroll, .long { overflow: visible; max-height: none; }
  /* A page is narrow, and nothing on it scrolls; names may break, numbers may not. */
  table th, table td, table.clips tbody th, table.clips td.words { padding: .2rem .25rem; font-size: .7rem; min-width: 0; }
  table th, td.words, td small { white-space: normal; }
  table tbody th, td.words { overflow-wrap: anywhere; }
  table tbody th { min-width: 4.2rem; }
  table.clips td.words, table.clips td:last-child { min-width: 3rem; }
  table.clips th, table.clips td, table.clips tbody th, table.clips td.words { padding: .1rem .18rem; font-size: .58rem; }
  table td small, table th small { font-size: .62rem; }
  table.clips th small { font-size: .5rem; }
  table.metrics td .value { font-size: .8rem; }
  table.clips button { white-space: normal; }
  thead button::after { content: none; }
  figure, tr, .banner { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  thead { display: table-header-group; }
}
"""
