// What a reader can do with a report: sort and search tables, and ask charts what a point is.
// Texts come from the page's data as they are to be read, and go into it as texts: nothing is formatted or parsed here.
"use strict";
(() => {
  const PAGE = 50, PRINTED = 1000, NEAR = 28; // rows on a screen and on paper; pixels to a point
  const source = document.getElementById("data");
  const data = source ? JSON.parse(source.textContent) : { columns: [], charts: {} };
  const make = (tag, text, kind) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };

  // Numbers as they are printed: "+3.2", "−1.5", "83.3 %", "1,024"; anything else sorts last.
  const numeric = (text) => {
    const value = parseFloat(text.replace("−", "-").replace(/,/g, ""));
    return Number.isNaN(value) ? null : value;
  };
  const words = new Intl.Collator(undefined, { numeric: true });
  const ordered = (rows, text, numbers, direction) => {
    const keys = new Map(rows.map((row) => [row, numbers ? numeric(text(row)) : text(row)]));
    return rows.sort((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return direction * (numbers ? x - y : words.compare(x, y));
    });
  };

  // The heads of a table become buttons that sort; sort(column, direction) does it.
  const sortable = (table, sort) => {
    table.querySelectorAll("thead th").forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const button = make("button");
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const first = head.classList.contains("text") || column === 0 ? "ascending" : "descending";
        const other = { ascending: "descending", descending: "ascending" }[first];
        const now = head.getAttribute("aria-sort") === first ? other : first;
        table.querySelectorAll("th[aria-sort]").forEach((one) => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", now);
        sort(column, now === "ascending" ? 1 : -1);
      });
    });
  };

  // A small table holds all of its rows.
  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0];
    sortable(table, (column, direction) => {
      const head = table.tHead.rows[0].cells[column];
      const numbers = column > 0 ? !head.classList.contains("text") : head.classList.contains("count");
      body.append(...ordered([...body.rows], (row) => row.cells[column].textContent.trim(), numbers, direction));
    });
  });

  // The table of clients holds a page of them; the rest is in the data.
  const clients = document.getElementById("clients");
  if (clients) {
    const columns = data.columns, body = clients.querySelector("tbody"), count = clients.querySelector(".count");
    const [search, back, on] = ["input", ".back", ".on"].map((what) => clients.querySelector(what));
    const everyone = columns[0].texts.map((_, client) => client);
    const found = columns.filter((column) => column.words).map((column) => column.texts.map((text) => text.toLowerCase()));
    let order = [...everyone], shown = order, start = 0, size = PAGE;
    const draw = () => {
      const rows = shown.slice(start, start + size).map((client) => {
        const row = make("tr");
        row.dataset.client = client;
        columns.forEach((column, place) => {
          const cell = make(place ? "td" : "th", undefined, column.words && place ? "text" : "");
          const text = column.texts[client];
          if (column.chip && text) cell.append(make("span", text, `chip ${text}`));
          else cell.textContent = text;
          if (!place) { cell.scope = "row"; cell.title = text; }
          row.append(cell);
        });
        return row;
      });
      body.replaceChildren(...rows);
      const last = Math.min(start + size, shown.length);
      const part = shown.length > size ? `${start + 1}–${last} of ${shown.length}` : `${shown.length}`;
      count.textContent = `${part}${shown.length < everyone.length ? ` found, of ${everyone.length}` : ""} clients`;
      back.disabled = start === 0;
      on.disabled = last >= shown.length;
      back.hidden = on.hidden = shown.length <= size;
    };
    const look = () => {
      const wanted = search.value.trim().toLowerCase();
      shown = wanted ? order.filter((client) => found.some((texts) => texts[client].includes(wanted))) : order;
      start = 0;
      draw();
    };
    sortable(clients.querySelector("table"), (column, direction) => {
      order = ordered([...everyone], (client) => columns[column].texts[client], !columns[column].words, direction);
      look();
    });
    search.addEventListener("input", look);
    back.addEventListener("click", () => { start = Math.max(0, start - size); draw(); });
    on.addEventListener("click", () => { start += size; draw(); });
    clients.querySelector(".tools").hidden = false;
    const resize = (rows) => { size = rows; start = 0; draw(); };
    window.addEventListener("beforeprint", () => resize(PRINTED));
    window.addEventListener("afterprint", () => resize(PAGE));
    draw();
  }

  // What is under the pointer.
  const tip = make("div");
  tip.id = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);
  const tell = (title, lines, x, y) => {
    tip.replaceChildren(make("b", title), lines.join("\n"));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
    tip.style.left = `${Math.max(4, Math.min(left, innerWidth - box.width - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 4))}px`;
  };
  const tellClient = (client, x, y, extra = []) => {
    const facts = data.columns.slice(1).filter((column) => column.texts[client]);
    tell(data.columns[0].texts[client], [...extra, ...facts.map((c) => `${c.name}: ${c.texts[client]}`)], x, y);
  };
  const quiet = () => { tip.hidden = true; document.querySelectorAll(".spot").forEach((spot) => spot.remove()); };

  // Points lie in thousandths of their frame. Without x they are as far apart as there is room.
  document.querySelectorAll(".hot").forEach((frame) => {
    const chart = data.charts[frame.dataset.chart];
    if (!chart) return;
    const count = chart.y.length, place = (point) => (chart.x ? chart.x[point] : (1000 * (point + 0.5)) / count);
    let current = 0;
    const show = (point) => {
      const box = frame.getBoundingClientRect(), spot = make("span", undefined, "spot");
      const [x, y] = [place(point) / 1000, chart.y[point] / 1000];
      quiet();
      current = point;
      spot.style.left = `${100 * x}%`;
      spot.style.top = `${100 * y}%`;
      frame.append(spot);
      const at = [box.left + x * box.width, box.top + y * box.height];
      const extra = chart.tips ? chart.tips[point].split("\n") : [];
      if (chart.clients) tellClient(chart.clients[point], ...at, extra);
      else tell(extra[0], extra.slice(1), ...at);
    };
    const follow = (event) => {
      const box = frame.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      let best = -1, least = Infinity;
      for (let point = 0; point < count; point++) {
        const dx = (place(point) / 1000) * box.width - x, dy = (chart.y[point] / 1000) * box.height - y;
        const far = chart.upright ? Math.abs(dx) : Math.hypot(dx, dy);
        if (far < least) [best, least] = [point, far];
      }
      if (best >= 0 && (chart.upright || least < NEAR)) show(best);
      else quiet();
    };
    frame.tabIndex = 0;
    frame.addEventListener("pointermove", follow);
    frame.addEventListener("pointerdown", follow);
    frame.addEventListener("pointerleave", quiet);
    frame.addEventListener("blur", quiet);
    frame.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step && count) { show((current + step + count) % count); event.preventDefault(); }
      if (event.key === "Escape") quiet();
    });
  });
  document.querySelectorAll(".rows [data-client], .weights [data-client]").forEach((row) => {
    const told = (event) => tellClient(Number(row.dataset.client), event.clientX, event.clientY);
    row.addEventListener("pointermove", told);
    row.addEventListener("pointerdown", told);
    row.addEventListener("pointerleave", quiet);
  });
  document.documentElement.classList.add("ready");
})();
