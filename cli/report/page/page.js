"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const detail = document.getElementById("detail");
  const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const usd = (v) => v == null ? "–" : "$" + v.toFixed(Math.abs(v) > 0 && Math.abs(v) < 0.1 ? 4 : 2) + "/h";
  const pad = (n) => String(n).padStart(2, "0");

  // Short runs of the demo show minutes and seconds since the start, all else date and time (UTC).
  const long = data.is_live || data.end > 3 * 3600, days = data.end > 2 * 86400;
  const clock = (s) => {
    if (!long) {
      const whole = Math.round(s);
      const hours = Math.floor(whole / 3600);
      return (hours ? hours + ":" + pad(Math.floor(whole / 60) % 60) : Math.floor(whole / 60)) + ":" + pad(whole % 60);
    }
    const at = new Date(data.start * 1000 + s * 1000).toISOString();
    return days ? at.slice(0, 10) + " " + at.slice(11, 16) : at.slice(11, data.end > 1800 ? 16 : 19);
  };
  // Ticks of long runs are at round times of the day, and whole days have no time.
  const tickLabel = (s, step) => days && step >= 86400 ? clock(s).slice(0, 10) : clock(s);
  const ticksOf = (step, end) => {
    const first = long ? (step - data.start % step) % step : 0;
    const ticks = [];
    for (let at = first; at <= end; at += step) ticks.push(at);
    return ticks;
  };

  // --- theme ---
  const button = document.getElementById("theme");
  const systemTheme = window.matchMedia("(prefers-color-scheme: dark)");
  let dark = systemTheme.matches;
  const charts = new Map();
  const paint = () => {
    root.classList.toggle("dark", dark);
    root.style.colorScheme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(dark));
    for (const plot of charts.values()) plot.destroy();
    drawCharts();
  };
  button.addEventListener("click", () => { dark = !dark; paint(); });
  systemTheme.addEventListener("change", (e) => { dark = e.matches; paint(); });

  // --- charts ---
  const NICE = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600];
  const LEFT = 56, RIGHT = 26, sync = uPlot.sync("time");
  const column = (i) => data.samples.map((s) => s[i]);
  const times = column(0);
  if (times.length) {
    times.push(data.end);
  }
  const closed = (i) => { const c = column(i); if (c.length) c.push(c[c.length - 1]); return c; };

  // Charts are drawn again for each theme: a legend keeps its colours.
  function chart(id, series, format, ticks) {
    const element = document.getElementById(id);
    const values = series.map((s) => closed(s.column));
    const known = times.filter((_, i) => values.some((c) => c[i] != null));
    if (!known.length || known[0] === data.end && data.end > 0) {
      const last = series.map((s, i) => [s.label, values[i][times.length - 1]]).filter((pair) => pair[1] != null);
      element.textContent = last.length
        ? "Only known for now: " + last.map(([label, v]) => format(v) + " " + label).join(", ") + "."
        : "No data.";
      element.classList.add("none");
      element.removeAttribute("tabindex");
      return;
    }
    const axis = (more) => Object.assign({
      stroke: () => color("quiet"), grid: { stroke: () => color("line"), width: 1 },
      ticks: { stroke: () => color("line"), width: 1 }, font: "12px system-ui, sans-serif",
    }, more);
    const stepped = uPlot.paths.stepped({ align: 1 });
    const options = {
      width: element.clientWidth, height: 210, padding: [10, RIGHT, 0, 0],
      cursor: { sync: { key: sync.key }, drag: { x: true, y: false }, points: { size: 7 } },
      scales: { x: { time: false, range: () => [0, Math.max(data.end, 1)] }, y: { range: (u, low, high) => [0, Math.max(high * 1.3, 1e-9)] } },
      axes: [
        axis({
          splits: (u, i, min, max, step) => ticksOf(step, max),
          // A label at the very end would be cut off.
          values: (u, splits, i, space, step) => splits.map((s) => s > data.end * 0.965 ? "" : tickLabel(s, step)),
          space: days ? 130 : 80, incrs: NICE,
        }),
        axis({ size: LEFT, values: (u, splits) => ticks(splits) }),
      ],
      series: [{ label: "at", value: (u, v) => v == null ? "–" : clock(v) }].concat(series.map((s) => ({
        label: s.label, stroke: () => color(s.color), width: s.width || 2, paths: stepped, points: { show: false },
        fill: s.fill ? () => color(s.color) + "22" : undefined, dash: s.dash, value: (u, v) => v == null ? "–" : format(v),
      }))),
      hooks: { draw: [marks] },
    };
    const plot = new uPlot(options, [times].concat(values), element);
    if (!charts.has(id)) {
      new ResizeObserver(() => charts.get(id).setSize({ width: element.clientWidth, height: 210 })).observe(element);
      element.addEventListener("keydown", (e) => walk(charts.get(id), e));
      element.addEventListener("blur", () => charts.get(id).setCursor({ left: -10, top: -10 }));
    }
    charts.set(id, plot);
  }

  // Thin lines with labels: where a step of the run begins, and where EC2 interrupts nodes.
  const interruptions = new Map();
  for (const [at] of data.interruptions) interruptions.set(at, (interruptions.get(at) || 0) + 1);

  function marks(u) {
    const { ctx } = u;
    ctx.save();
    ctx.font = 11 * devicePixelRatio + "px system-ui, sans-serif";
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.fillStyle = color("quiet");
    ctx.strokeStyle = color("line");
    const mark = (at, label, row) => {
      const x = u.valToPos(at, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, u.bbox.top);
      ctx.lineTo(x, u.bbox.top + u.bbox.height);
      ctx.stroke();
      ctx.fillText(label, x + 4 * devicePixelRatio, u.bbox.top + row * 13 * devicePixelRatio - 2 * devicePixelRatio);
    };
    for (const [at, label] of data.marks) mark(at, label, 1);
    ctx.fillStyle = ctx.strokeStyle = color("drain");
    for (const [at, count] of interruptions) mark(at, count + " interrupted", 2);
    ctx.restore();
  }

  function walk(u, e) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (!(e.key in steps)) return;
    e.preventDefault();
    const last = times.length - 1;
    const before = u.cursor.idx == null || u.cursor.left < 0 ? -1 : u.cursor.idx;
    const next = Math.min(last, Math.max(0, before + steps[e.key]));
    u.setCursor({ left: u.valToPos(times[next], "x"), top: 20 });
    announce([clock(times[next]), ...u.series.slice(1).map((s, i) => s.label + " " + (u.data[i + 1][next] ?? "unknown"))].join(", "));
  }

  function drawCharts() {
    chart("cost", [
      { column: 2, label: "lower bound", color: "bound", dash: [5, 4], width: 1.5 },
      { column: 1, label: "cost", color: "cost", fill: true },
    ], usd, (splits) => {
      const exact = (digits) => splits.every((v) => Math.abs(v - Number(v.toFixed(digits))) < 1e-9);
      const digits = [2, 3, 4].find(exact) ?? 5;
      return splits.map((v) => "$" + v.toFixed(digits));
    });
    chart("pods", [
      { column: 3, label: "scheduled", color: "placed", fill: true },
      { column: 4, label: "pending", color: "pending" },
    ], (v) => String(Math.round(v)), (splits) => splits.map((v) => Number.isInteger(v) ? String(v) : ""));
  }

  // --- nodes ---
  const timeline = document.getElementById("timeline");
  const share = (s) => 100 * Math.min(1, Math.max(0, s / Math.max(data.end, 1)));
  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text != null) element.textContent = text;
    return element;
  };
  const bar = (lane, name, from, to) => {
    if (from == null) return;
    const element = make("span", name);
    element.style.left = share(from) + "%";
    element.style.width = Math.max(0, share(to) - share(from)) + "%";
    lane.append(element);
  };
  const rows = data.spans.map((s, i) => {
    const row = make("div", "row");
    row.id = "node-" + i;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", "false");
    const name = make("div", "name", s.name.split(".")[0] + " ");
    name.append(make("i", "", s.instance_type || ""));
    const lane = make("div", "lane");
    const end = s.gone ?? data.end;
    const first = s.asked ?? s.launched ?? s.ready ?? s.leaving ?? s.gone;
    const ready = s.ready ?? s.leaving ?? end;
    bar(lane, "boot", first, Math.min(ready, end));
    if (s.ready != null) bar(lane, s.capacity_type || "on-demand", s.ready, s.leaving ?? end);
    bar(lane, "drain", s.leaving ?? (s.asked == null && s.ready == null ? s.gone : null), end);
    for (const [at, node] of data.interruptions) {
      if (node !== s.name) continue;
      const mark = make("span", "mark");
      mark.style.left = share(at) + "%";
      lane.append(mark);
    }
    row.append(name, lane);
    row.setAttribute("aria-label", detailsOf(s).map((pair) => pair.join(" ")).join(", "));
    row.addEventListener("mousemove", (e) => show(s, e.clientX, e.clientY));
    row.addEventListener("mouseleave", hide);
    row.addEventListener("click", () => choose(i));
    return row;
  });
  const axis = make("div", "row axis");
  axis.append(make("div", "name"), make("div", "lane"));
  const most = Math.max(2, Math.min(9, Math.floor((timeline.clientWidth - 120) / (days ? 110 : 64))));
  const step = NICE.find((s) => data.end / s <= most) ?? NICE[NICE.length - 1];
  for (const at of ticksOf(step, data.end * (days ? 0.87 : 0.93))) {
    const tick = make("span", "", tickLabel(at, step));
    tick.style.left = share(at) + "%";
    axis.lastChild.append(tick);
  }
  axis.setAttribute("aria-hidden", "true");
  timeline.append(axis, ...rows);
  if (!rows.length) timeline.append(make("p", "quiet", "No nodes."));

  function detailsOf(s) {
    const details = [["", s.name]];
    const offering = [s.instance_type, s.capacity_type, s.zone].filter(Boolean).join(", ");
    if (offering) details.push(["offering", offering]);
    if (s.price != null) details.push(["price", usd(s.price)]);
    if (s.pool) details.push(["pool", s.pool]);
    if (s.most_pods) details.push(["most pods", String(s.most_pods)]);
    if (s.chunks) details.push(["chunks", String(s.chunks)]);
    if (s.asked != null) details.push(["created", clock(s.asked)]);
    if (s.ready != null) details.push(["ready", clock(s.ready) + (s.asked != null ? " (after " + Math.round(s.ready - s.asked) + " s)" : "")]);
    if (s.gone != null) details.push(["terminated", clock(s.gone)]);
    if (s.why) details.push(["reason", s.why]);
    return details;
  }

  function show(s, x, y) {
    detail.replaceChildren();
    for (const [key, value] of detailsOf(s)) {
      if (!key) { detail.append(make("b", "", value)); continue; }
      const line = make("div");
      line.append(make("span", "", key), make("span", "", value));
      detail.append(line);
    }
    detail.hidden = false;
    const box = detail.getBoundingClientRect();
    detail.style.left = Math.max(8, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
    detail.style.top = Math.max(8, Math.min(y + 14, innerHeight - box.height - 8)) + "px";
  }
  function hide() { detail.hidden = true; }
  function announce(text) {
    detail.replaceChildren(make("div", "", text));
    detail.hidden = false;
    detail.style.left = "16px";
    detail.style.top = innerHeight - 60 + "px";
  }

  let chosen = -1;
  function choose(i) {
    rows[chosen]?.classList.remove("on");
    rows[chosen]?.setAttribute("aria-selected", "false");
    chosen = Math.min(rows.length - 1, Math.max(0, i));
    const row = rows[chosen];
    if (!row) return;
    row.classList.add("on");
    row.setAttribute("aria-selected", "true");
    timeline.setAttribute("aria-activedescendant", row.id);
    row.scrollIntoView({ block: "nearest" });
    const box = row.lastChild.getBoundingClientRect();
    show(data.spans[chosen], box.left + 40, box.bottom);
  }
  timeline.addEventListener("keydown", (e) => {
    const steps = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (e.key === "Escape") hide();
    if (!(e.key in steps)) return;
    e.preventDefault();
    choose(chosen + steps[e.key]);
  });
  timeline.addEventListener("blur", hide);
  document.addEventListener("keydown", (e) => { if (e.key === "Escape") hide(); });

  paint();
  document.body.dataset.ready = "true";
})();
