// Filters hide rows; the address keeps the choice, so that a view can be shared. The table is complete without this.
const form = document.querySelector("form");
const rows = [...document.querySelectorAll("tbody tr:not(.setting)")];

function show() {
  const chosen = Object.fromEntries(new FormData(form));
  const protocol = chosen.protocol;
  let count = 0;
  for (const row of rows) {
    const fits = Object.entries(chosen).every(([name, value]) => name === "protocol" || !value || row.dataset[name] === value);
    row.hidden = !fits || (protocol !== "" && !row.hasAttribute(`data-${protocol}`));
    count += row.hidden ? 0 : 1;
  }
  for (const body of document.querySelectorAll("tbody")) {
    body.hidden = [...body.rows].every((row) => row.hidden || row.classList.contains("setting"));
  }
  for (const cell of document.querySelectorAll("[data-protocol]")) {
    cell.hidden = protocol !== "" && cell.dataset.protocol !== protocol;
  }
  form.querySelector("output").textContent = `${count} of ${rows.length} rows`;
  const kept = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value));
  history.replaceState(null, "", kept.size ? `#${kept}` : location.pathname);
}

for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
  const field = form.elements.namedItem(name);
  if (field) field.value = value;
}
form.addEventListener("change", show);
form.addEventListener("submit", (event) => event.preventDefault());
show();
