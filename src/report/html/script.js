"use strict";
for (const box of document.querySelectorAll(".wide")) {
  const body = box.querySelector("tbody");
  const rows = Array.from(body.rows);
  const heads = Array.from(box.querySelectorAll("th"));
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const text = (row) => row.cells[column].textContent;
      const compare = (a, b) => text(a).localeCompare(text(b), "en", { numeric: true });
      body.append(...rows.slice().sort((a, b) => (up ? compare(a, b) : compare(b, a))));
    });
  });
  if (rows.length < 8) continue;
  const bar = document.createElement("div");
  bar.className = "filter";
  const label = document.createElement("label");
  label.textContent = "filter ";
  const input = document.createElement("input");
  input.type = "search";
  const count = document.createElement("output");
  label.append(input);
  bar.append(label, count);
  box.before(bar);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  });
}
