"""How `report.html` looks: light, readable, at any width, and on paper."""

STYLE = """
:root {
  color-scheme: light;
  --ink: #1d2430;
  --dim: #5c6675;
  --line: #dde2ea;
  --tint: #f5f7fa;
  --accent: #0072b2;
}
* { box-sizing: border-box; }
body {
  margin: 0;
  background: #fff;
  color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif;
}
main { max-width: 1180px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .75rem; overflow-wrap: anywhere; }
h2 {
  font-size: 1.15rem;
  margin: 2.25rem 0 .5rem;
  padding-bottom: .3rem;
  border-bottom: 2px solid var(--accent);
}
ul { padding-left: 1.2rem; }
ul.intro { list-style: none; padding: .75rem 1rem; background: var(--tint); border-radius: 8px; }
li { margin: .3rem 0; overflow-wrap: anywhere; }
small { color: var(--dim); font-size: .78rem; font-weight: 400; }
code { background: var(--tint); padding: .05rem .3rem; border-radius: 4px; font-size: .86em; }
.scroll { overflow-x: auto; margin: .75rem 0 1.25rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--dim); padding-bottom: .35rem; }
th, td {
  padding: .45rem .55rem;
  text-align: right;
  vertical-align: top;
  border-bottom: 1px solid var(--line);
  white-space: nowrap;
}
th small, td small { display: block; line-height: 1.35; }
thead th { background: var(--tint); font-size: .86rem; line-height: 1.3; white-space: normal; vertical-align: bottom; }
tbody th, thead th:first-child { text-align: left; font-weight: 600; position: sticky; left: 0; background: #fff; }
tbody th { white-space: normal; min-width: 6.5rem; max-width: 13rem; overflow-wrap: anywhere; }
thead th:first-child { background: var(--tint); }
td.words { text-align: left; white-space: normal; min-width: 16rem; }
.figures {
  display: grid;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr));
  gap: 1.25rem;
  align-items: start;
}
figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; padding: .75rem; }
figure img, figure video { width: 100%; height: auto; display: block; }
figcaption { color: var(--dim); font-size: .9rem; padding-top: .5rem; }
details { margin: .4rem 0; }
summary { cursor: pointer; font-weight: 600; }
@media (max-width: 600px) { body { font-size: 15px; } main { padding: 1.25rem .75rem 3rem; } }
@media print { main { max-width: none; } }
"""
