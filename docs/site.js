// site.css shows the name of the column before a cell on a phone.
for (const table of document.querySelectorAll("article table")) {
  const names = [...table.querySelectorAll("th")].map(each => each.textContent);
  for (const cell of table.querySelectorAll("td")) {
    cell.dataset.label = names[cell.cellIndex];
  }
}
