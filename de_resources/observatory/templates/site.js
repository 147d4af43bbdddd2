"use strict";
(() => {
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const kept = {
    get() { try { return localStorage.getItem("theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("theme", value); } catch { /* a browser that keeps nothing */ } },
  };

  // Light and dark: as the system has it, until a person chooses.
  const root = document.documentElement, toggle = one("#theme");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme:dark)").matches;
  if (["light", "dark"].includes(kept.get())) root.dataset.theme = kept.get();
  toggle.hidden = false;
  toggle.addEventListener("click", () => kept.set(root.dataset.theme = dark() ? "light" : "dark"));

  // Datasets by name and by verdict.
  const find = one("#find");
  if (find) {
    const rows = all("tr[data-verdict]"), tiles = all(".tile");
    const show = () => {
      const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
      const chosen = tiles.filter(tile => tile.getAttribute("aria-pressed") === "true").map(tile => tile.dataset.verdict);
      let count = 0;
      for (const row of rows) {
        const fits = words.every(word => row.dataset.words.includes(word)) && (!chosen.length || chosen.includes(row.dataset.verdict));
        row.hidden = !fits;
        count += fits;
      }
      for (const body of all(".datasets tbody")) body.hidden = !all("tr[data-verdict]", body).some(row => !row.hidden);
      one("#found").textContent = count === rows.length ? "" : `${count} of ${rows.length}`;
    };
    find.closest("p").hidden = false;
    find.addEventListener("input", show);
    for (const tile of tiles) tile.addEventListener("click", () => {
      tile.setAttribute("aria-pressed", tile.getAttribute("aria-pressed") !== "true");
      show();
    });
  }

  // A square of a calendar, for fingers and mice.
  for (const calendar of all(".calendar")) {
    const tells = one(".tells", calendar.closest(".card"));
    const tell = event => {
      const square = event.target.closest(".q");
      if (!square || !tells) return;
      for (const other of all(".q.on")) other.classList.remove("on");
      square.classList.add("on");
      tells.textContent = one("title", square).textContent;
    };
    calendar.addEventListener("pointerover", tell);
    calendar.addEventListener("click", tell);
  }

  // The way of a column, from the systems outside to everything that is made of it.
  const data = one("#lineage-data");
  if (!data) return;
  const { datasets, nodes, edges, base } = JSON.parse(data.textContent);
  const above = nodes.map(() => []), below = nodes.map(() => []);
  for (const [from, to] of edges) { above[to].push(from); below[from].push(to); }
  const panel = one("#lineage"), map = one("#lineage-map"), told = one("#lineage-told");
  const name = n => nodes[n][1], dataset = n => datasets[nodes[n][0]];

  // Distance of everything that is reached: the longest way, so that no edge leads back. Circles are walked once.
  const reached = (start, step) => {
    const depth = new Map([[start, 0]]), order = [], state = new Map();
    const visit = n => {
      const waiting = [[n, 0]];
      state.set(n, 1);
      while (waiting.length) {
        const top = waiting[waiting.length - 1];
        if (top[1] < step[top[0]].length) {
          const next = step[top[0]][top[1]++];
          if (!state.has(next)) { state.set(next, 1); waiting.push([next, 0]); }
        } else { order.push(top[0]); waiting.pop(); }
      }
    };
    visit(start);
    const place = new Map(order.reverse().map((n, i) => [n, i]));
    for (const n of order) for (const next of step[n]) {
      if (place.get(next) > place.get(n)) depth.set(next, Math.max(depth.get(next) ?? 0, (depth.get(n) ?? 0) + 1));
    }
    return depth;
  };

  const make = (tag, text, className) => {
    const element = document.createElement(tag);
    if (text) element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  const slug = text => text.replace(/[^A-Za-z0-9_.-]/g, "_");
  const title = n => dataset(n)[0] + (name(n) ? "." + name(n) : "");
  const owned = n => `${title(n)} (${dataset(n)[1] || "no owner"})`;

  const card = (own, chosen) => {
    const [label, owner, page, external] = dataset(own[0]);
    const node = make("div", "", "node" + (external ? " begin" : "") + (own.includes(chosen) ? " here" : ""));
    const link = make("a", label);
    link.href = base + page;
    node.append(link, make("small", owner || "no owner"));
    const list = make("ul");
    for (const n of own) {
      const item = make("li"), way = make("a", name(n) || "as a whole");
      way.href = base + page + (name(n) ? "#column-" + slug(name(n)) : "");
      if (n === chosen) way.setAttribute("aria-current", "true");
      item.append(way);
      item.dataset.node = n;
      list.append(item);
    }
    node.append(list);
    return node;
  };

  const draw = (layers, shown) => {
    const frame = map.getBoundingClientRect(), svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("aria-hidden", "true");
    const box = n => one(`[data-node="${n}"]`, map).getBoundingClientRect();
    for (const [from, to] of edges) {
      if (!shown.has(from) || !shown.has(to) || layers.get(from) >= layers.get(to)) continue;
      const a = one(`[data-node="${from}"]`, map).closest(".node").getBoundingClientRect(), b = one(`[data-node="${to}"]`, map).closest(".node").getBoundingClientRect();
      const x1 = a.right - frame.left, y1 = box(from).top + box(from).height / 2 - frame.top;
      const x2 = b.left - frame.left, y2 = box(to).top + box(to).height / 2 - frame.top;
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d", `M${x1} ${y1}C${x1 + 18} ${y1} ${x2 - 18} ${y2} ${x2} ${y2}`);
      svg.append(path);
    }
    map.prepend(svg);
  };

  const choose = (column, scroll) => {
    const chosen = nodes.findIndex(([d, c]) => d === 0 && c === column);
    if (chosen < 0) return;
    for (const button of all("button.column")) button.setAttribute("aria-pressed", button.dataset.column === column);
    const layers = new Map();
    for (const [n, depth] of reached(chosen, below)) layers.set(n, depth);
    for (const [n, depth] of reached(chosen, above)) if (n !== chosen) layers.set(n, -depth);
    map.replaceChildren();
    panel.hidden = false;
    for (const depth of [...new Set(layers.values())].sort((a, b) => a - b)) {
      const layer = make("div", "", "layer"), byDataset = new Map();
      for (const [n, d] of layers) if (d === depth) byDataset.set(nodes[n][0], [...(byDataset.get(nodes[n][0]) || []), n]);
      for (const own of byDataset.values()) layer.append(card(own.sort((a, b) => name(a) < name(b) ? -1 : 1), chosen));
      map.append(layer);
    }
    draw(layers, new Set(layers.keys()));
    const begins = [...layers.keys()].filter(n => layers.get(n) <= 0 && !above[n].length);
    const used = [...layers.keys()].filter(n => layers.get(n) > 0);
    const origin = begins.length === 1 && begins[0] === chosen ? "is made here" : `begins in ${begins.slice(0, 6).map(owned).join(", ")}${begins.length > 6 ? ` and ${begins.length - 6} more` : ""}`;
    told.textContent = `${title(chosen)} ${origin}. ${used.length ? `${used.length} column${used.length === 1 ? "" : "s"} below ${used.length === 1 ? "is" : "are"} made of it.` : "Nothing recorded is made of it."}`;
    one(".here", map).scrollIntoView({ block: "nearest", inline: "center" });
    if (scroll) panel.scrollIntoView({ block: "start" });
  };

  for (const button of all("button.column")) button.addEventListener("click", () => {
    history.replaceState(null, "", "#column-" + slug(button.dataset.column));
    choose(button.dataset.column, true);
  });
  const asked = () => {
    const button = all("button.column").find(each => "#column-" + slug(each.dataset.column) === location.hash);
    if (button) choose(button.dataset.column, true);
  };
  addEventListener("hashchange", asked);
  addEventListener("resize", () => {
    const pressed = one("button.column[aria-pressed=true]");
    if (pressed) choose(pressed.dataset.column, false);
  });
  asked();
})();
