"use strict";
// Tables with a name can be sorted by each column and filtered by words and by the marks in them.

const value = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
};

// Numbers by size, text as people read it (7x7 before 11x11), what is missing last in either direction.
const order = (a, b, sign) => {
  if (a === "" || b === "") return (a === "") - (b === "");
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), "en", { numeric: true });
};

const sortable = (table) => {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [value(row, column), row]);
      rows.sort(([a], [b]) => order(a, b, sign));
      body.append(...rows.map(([, row]) => row));
    });
  });
};

const labelled = (text, control) => {
  const label = document.createElement("label");
  label.append(text, control);
  return label;
};

const filterable = (box, table) => {
  const rows = [...table.tBodies[0].rows];
  const marks = rows.map((row) => [...row.querySelectorAll(".mark")].map((mark) => mark.textContent));
  const words = document.createElement("input");
  words.type = "search";
  words.placeholder = "words that a row holds";
  const mark = document.createElement("select");
  for (const kind of ["all", ...new Set(marks.flat())]) mark.add(new Option(kind));
  const shown = document.createElement("output");
  const update = () => {
    const wanted = words.value.toLowerCase().split(/\s+/);
    rows.forEach((row, i) => {
      const text = row.textContent.toLowerCase();
      const fits = mark.value === "all" || marks[i].includes(mark.value);
      row.hidden = !(fits && wanted.every((word) => text.includes(word)));
    });
    shown.value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} shown`;
  };
  words.addEventListener("input", update);
  mark.addEventListener("change", update);
  const controls = document.createElement("div");
  controls.className = "controls";
  controls.append(labelled("filter ", words));
  const marked = rows.map((row) => row.querySelector("td:has(.mark)")).find(Boolean);
  if (mark.options.length > 2) controls.append(labelled(`${marked.dataset.head} `, mark));
  controls.append(shown);
  box.prepend(controls);
  update();
};

for (const box of document.querySelectorAll(".table[data-name]")) {
  const table = box.querySelector("table");
  sortable(table);
  filterable(box, table);
}

// On a narrow screen a chart opens at its axis, with the ends of the names beside it in a quarter of the room.
for (const box of document.querySelectorAll(".chart")) {
  const axes = box.querySelector('[id$="-axes_1"] [id$="-patch_2"]');
  if (!axes || box.scrollWidth <= box.clientWidth) continue;
  const { left, right } = axes.getBoundingClientRect();
  const start = box.getBoundingClientRect().left;
  if (right - start > box.clientWidth) {
    box.scrollLeft = Math.min(left - start - box.clientWidth / 4, right - start - box.clientWidth);
  }
}

// What is folded away is printed too.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
