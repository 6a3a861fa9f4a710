"use strict";
// Tables sort by a click on a column's head; numbers by value, undefined cells last. Without this script they are plain.
(function () {
  function value(row, index) {
    var cell = row.cells[index];
    return cell.hasAttribute("data-sort") ? cell.getAttribute("data-sort") : null;
  }
  function compare(a, b) {
    var x = Number(a), y = Number(b);
    if (a !== "" && b !== "" && !isNaN(x) && !isNaN(y)) { return x - y; }
    return a.localeCompare(b, undefined, { numeric: true });
  }
  document.querySelectorAll("table").forEach(function (table) {
    var body = table.tBodies[0], heads = table.tHead.rows[0].cells, given = Array.from(body.rows);
    if (given.length < 2) { return; }
    Array.from(heads).forEach(function (head, index) {
      var button = document.createElement("button");
      button.type = "button";
      while (head.firstChild) { button.appendChild(head.firstChild); }
      var arrow = document.createElement("span");
      arrow.className = "arrow";
      arrow.setAttribute("aria-hidden", "true");
      button.querySelector(".name").appendChild(arrow);
      head.appendChild(button);
      button.addEventListener("click", function () {
        var words = head.classList.contains("words");
        var states = words ? ["ascending", "descending", null] : ["descending", "ascending", null];
        var next = states[(states.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
        Array.from(heads).forEach(function (other) { other.removeAttribute("aria-sort"); });
        var rows = given.slice();
        if (next) {
          head.setAttribute("aria-sort", next);
          var sign = next === "ascending" ? 1 : -1;
          rows.sort(function (r, s) {
            var a = value(r, index), b = value(s, index);
            if (a === null || b === null) { return (a === null) - (b === null); }
            return sign * compare(a, b);
          });
        }
        rows.forEach(function (row) { body.appendChild(row); });
      });
    });
  });
  var opened = [];
  window.addEventListener("beforeprint", function () {
    opened = Array.from(document.querySelectorAll("details:not([open])"));
    opened.forEach(function (d) { d.open = true; });
  });
  window.addEventListener("afterprint", function () { opened.forEach(function (d) { d.open = false; }); });
})();
