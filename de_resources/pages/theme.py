"""The look of the platform's pages, in light and in dark. No page fetches a font, a style or anything else."""

LIGHT = (
    "--paper:#fbfbfa;--card:#fff;--ink:#1d2129;--soft:#5c6470;--edge:#d9dce1;--accent:#2563a8;--alarm:#b93815;"
    "color-scheme:light"
)
DARK = (
    "--paper:#14161a;--card:#1d2026;--ink:#e7e9ee;--soft:#a0a8b4;--edge:#363b44;--accent:#74b3f2;--alarm:#ff8f6b;"
    "color-scheme:dark"
)
BASE = f"""
:root{{{LIGHT}}}
@media(prefers-color-scheme:dark){{:root{{{DARK}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}}
main{{max-width:1060px;margin:0 auto;padding:20px 16px 48px}}
h1{{font-size:1.5rem;margin:0 0 4px}}
h2{{font-size:1.1rem;margin:28px 0 10px}}
h3{{font-size:1rem;margin:0}}
p{{margin:4px 0}}
.soft,small{{color:var(--soft)}}
.facts{{display:flex;flex-wrap:wrap;gap:6px 20px;margin:12px 0;padding:0;list-style:none}}
.facts b{{font-size:1.15rem}}
.grid{{display:grid;gap:12px;grid-template-columns:repeat(auto-fill,minmax(min(300px,100%),1fr))}}
.card{{background:var(--card);border:1px solid var(--edge);border-radius:8px;padding:12px 14px;min-width:0}}
.badge{{border:1px solid var(--edge);border-radius:99px;padding:0 8px;font-size:.78rem;font-weight:400;white-space:nowrap}}
"""
"""What every page begins its style with; its own rules follow."""
