// site.css shows the name of the column before a cell on a phone.
for (const table of document.querySelectorAll("article table")) {
  const names = [...table.querySelectorAll("th")].map(each => each.textContent);
  for (const cell of table.querySelectorAll("td")) {
    cell.dataset.label = names[cell.cellIndex];
  }
}

// A path of a field in the contents may break after each dot.
for (const name of document.querySelectorAll(".md-nav__link .md-ellipsis code")) {
  name.replaceChildren(...name.textContent.split(/(?<=\.)/).flatMap(part => [part, document.createElement("wbr")]));
}
