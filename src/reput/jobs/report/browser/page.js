// Draws the plots of a report in the page's colours, and tells which tables scroll.
"use strict";

const LEAST_BAR = 60; // pixels of the longest bar, where names are long

addEventListener("DOMContentLoaded", () => {
  const options = JSON.parse(document.getElementById("plots")?.textContent ?? "[]");
  const figures = [...document.querySelectorAll("figure")];
  let charts = [];

  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  // As `write_number` of units.py: thin spaces between thousands, three digits of a fraction.
  const number = value => {
    if (typeof value !== "number") return "";
    const rounded = Number.isInteger(value) || Math.abs(value) >= 1000 ? Math.round(value) : +value.toPrecision(3);
    return rounded.toLocaleString("en-US", { maximumSignificantDigits: 21 }).replaceAll(",", "\u202f");
  };
  const withUnit = unit => value => `${number(value)}${unit && value !== undefined ? "\u202f" + unit : ""}`;
  const time = ms => new Date(ms).toISOString().replace("T", " ").replace(/( 00:00)?(:00)?\.000Z$|Z$/, "");

  const canvas = document.createElement("canvas").getContext("2d");
  canvas.font = `13px ${getComputedStyle(document.body).fontFamily}`;
  const widthOf = text => canvas.measureText(text).width;

  function theme() {
    const [text, muted, line] = ["text", "muted", "line"].map(colour);
    const axis = {
      axisLine: { lineStyle: { color: line } }, axisTick: { lineStyle: { color: line } },
      axisLabel: { color: text, fontSize: 13 }, splitLine: { lineStyle: { color: line } },
      nameTextStyle: { color: muted, fontSize: 13 },
    };
    return {
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      categoryAxis: axis, valueAxis: axis, timeAxis: axis,
      tooltip: {
        backgroundColor: colour("card"), borderColor: line, textStyle: { color: text, fontSize: 13 },
        axisPointer: { lineStyle: { color: muted }, label: { color: text } },
      },
      dataZoom: {
        showDetail: false, brushSelect: false, moveHandleSize: 0, borderColor: line, backgroundColor: "transparent", textStyle: { color: muted },
        fillerColor: "rgb(127 127 127 / 20%)", handleStyle: { color: colour("card"), borderColor: muted },
        dataBackground: { lineStyle: { color: muted }, areaStyle: { color: muted } },
        selectedDataBackground: { lineStyle: { color: muted }, areaStyle: { color: muted } },
      },
      visualMap: { textStyle: { color: text, fontSize: 13 }, color: colour("scale").split(" ").reverse() },
    };
  }

  // What JSON cannot say: how numbers and times are written, and how wide names of bars may be.
  function complete(option, width) {
    for (const axis of [option.xAxis, option.yAxis].flat().filter(Boolean)) {
      axis.axisLabel ??= {};
      if (axis.type === "value" || axis.type === undefined) axis.axisLabel.formatter = number;
      if (axis.type === "time") axis.axisLabel.formatter = { month: "{MMM} {yyyy}", day: "{d} {MMM}" };
      if (axis.type === "time") axis.axisPointer = { label: { formatter: ({ value }) => time(value) } };
    }
    const names = Array.isArray(option.yAxis) ? [] : option.yAxis.data, room = width - option.grid.right - LEAST_BAR;
    if (names.some(name => widthOf(name) > room)) {
      const fitting = name => name.slice(0, Math.floor(name.length * 1.8 * room / widthOf(name))); // on two lines
      const formatter = name => fitting(name) === name ? name : `${fitting(name)}…`;
      Object.assign(option.yAxis.axisLabel, { width: room, lineHeight: 14, overflow: "break", formatter });
    }
    for (const series of option.series) {
      series.animation = false;
      series.tooltip = { valueFormatter: withUnit(series.unit) };
      if (series.type === "bar") {
        Object.assign(series.label, { formatter: ({ data }) => data.text, color: colour("text"), fontSize: 13 });
        series.tooltip.formatter = ({ seriesName, name, data }) =>
          [name, seriesName, data.text].map(echarts.format.encodeHTML).join("<br>");
      }
      if (series.type === "heatmap") {
        series.itemStyle = { borderColor: colour("card"), borderWidth: 1 };
        series.tooltip.formatter = ({ value: [column, row, cell] }) =>
          echarts.format.encodeHTML(`${option.yAxis.data[row]}, ${option.xAxis.data[column]}: ${number(cell)} ${series.unit}`);
      }
    }
    return { useUTC: true, legend: { show: false }, ...option, tooltip: { confine: true, ...option.tooltip } };
  }

  // Panes of lines stand below each other, so they have one left margin: the widest number of their axes fits.
  function drawPanes(chart, option) {
    let widest = 0;
    for (const axis of option.yAxis) {
      axis.axisLabel.formatter = value => {
        widest = Math.max(widest, widthOf(number(value)));
        return number(value);
      };
    }
    chart.setOption(option); // ECharts chooses the numbers
    const grid = option.grid.map(pane => ({ ...pane, left: widest + 12 }));
    chart.setOption({ ...option, grid }, { notMerge: true });
  }

  function draw() {
    charts.forEach(chart => chart.dispose());
    charts = options.map((option, index) => {
      const place = figures[index].querySelector(".plot");
      const chart = echarts.init(place, theme(), { renderer: "svg" });
      const completed = complete(structuredClone(option), place.clientWidth);
      if (Array.isArray(completed.yAxis)) drawPanes(chart, completed);
      else chart.setOption(completed);
      return chart;
    });
    figures.forEach((figure, index) => figure.querySelectorAll("button").forEach(button => {
      button.setAttribute("aria-pressed", "true");
      button.onclick = () => {
        charts[index].dispatchAction({ type: "legendToggleSelect", name: button.textContent });
        button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
      };
    }));
  }

  function tellWhatScrolls() {
    for (const box of document.querySelectorAll(".scroll")) {
      const ways = [box.scrollWidth > box.clientWidth + 1 && "sideways", box.scrollHeight > box.clientHeight + 1 && "down"];
      const scrolled = ways.filter(Boolean).join(" and ");
      box.previousElementSibling.querySelector(".hint").textContent = scrolled && `; the table scrolls ${scrolled}`;
    }
  }

  function show() {
    draw();
    tellWhatScrolls();
  }

  show();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; show(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("beforeprint", draw);
});
