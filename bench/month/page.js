"use strict";
(() => {
  const months = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const button = document.getElementById("theme");
  let dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  let plots = [];

  const day = (hour) => "day " + (Math.floor(hour / 24) + 1) + ", " + String(hour % 24).padStart(2, "0") + ":00";

  function chart(id, hours, series, format) {
    const element = document.getElementById(id);
    const axis = (more) => Object.assign({
      stroke: () => color("quiet"), grid: { stroke: () => color("line"), width: 1 },
      ticks: { stroke: () => color("line"), width: 1 }, font: "12px system-ui, sans-serif",
    }, more);
    const options = {
      width: element.clientWidth, height: 210, padding: [10, 26, 0, 0],
      cursor: { sync: { key: "time" }, drag: { x: true, y: false } },
      scales: { x: { time: false }, y: { range: (u, low, high) => [0, Math.max(high * 1.15, 1e-9)] } },
      axes: [
        axis({ values: (u, splits) => splits.map((h) => "day " + (h / 24 + 1)), incrs: [24, 48, 72, 120, 168, 240] }),
        axis({ size: 56, values: (u, splits) => splits.map(format) }),
      ],
      series: [{ label: "at", value: (u, v) => v == null ? "–" : day(v) }].concat(series.map((s) => ({
        label: s.label, stroke: () => color(s.color), width: 1.5, dash: s.dash, points: { show: false },
        value: (u, v) => v == null ? "–" : format(v),
      }))),
    };
    const plot = new uPlot(options, [hours].concat(series.map((s) => s.values)), element);
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: 210 }));
    observer.observe(element);
    plots.push({ destroy: () => { observer.disconnect(); plot.destroy(); } });
  }

  function paint() {
    root.classList.toggle("dark", dark);
    root.style.colorScheme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(dark));
    for (const plot of plots) plot.destroy();
    plots = [];
    months.forEach((month, i) => {
      const hours = month.bound.map((_, hour) => hour);
      const dollars = (v) => "$" + v.toFixed(2);
      chart("cost-" + i, hours, [
        { label: "lower bound", values: month.bound, color: "bound", dash: [5, 4] },
        { label: "Karpenter's rules", values: month.karpenter.cost, color: "pending" },
        { label: "Tenon", values: month.tenon.cost, color: "cost" },
      ], dollars);
      chart("nodes-" + i, hours, [
        { label: "Karpenter's rules", values: month.karpenter.nodes, color: "pending" },
        { label: "Tenon", values: month.tenon.nodes, color: "cost" },
      ], (v) => String(Math.round(v)));
    });
  }
  button.addEventListener("click", () => { dark = !dark; paint(); });
  paint();
})();
