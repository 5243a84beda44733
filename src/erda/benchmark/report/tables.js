// A click on the head of a column sorts its table; a second click turns it round. The page reads well without this.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent.trim();
    const number = parseFloat(text.replace("−", "-"));
    return Number.isNaN(number) ? text : number;
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const compare = (one, other) => {
        const a = valueOf(one, column), b = valueOf(other, column);
        if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1; // numbers first, dashes last
        const order = typeof a === "number" ? a - b : a.localeCompare(b);
        return up ? order : -order;
      };
      body.append(...[...body.rows].sort(compare));
    });
  });
}

// A table that goes on to the right fades there.
for (const box of document.querySelectorAll(".scroll")) {
  const look = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
}
