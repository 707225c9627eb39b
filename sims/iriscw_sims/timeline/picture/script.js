"use strict";
(() => {
  const board = document.querySelector(".board"), tip = document.getElementById("tip");
  const items = [...document.querySelectorAll(".story li[data-at]")], rows = [...document.querySelectorAll(".row[data-s]")];
  const all = document.getElementById("all"), chosen = document.getElementById("chosen");
  const labelWidth = () => parseFloat(getComputedStyle(board).getPropertyValue("--label"));
  const trackWidth = () => board.querySelector(".head .track").clientWidth - 12;

  // Tips: the titles of the picture, nearer and sooner than the browser's own.
  const texts = new WeakMap();
  for (const each of document.querySelectorAll(".row .s")) {
    const title = each.querySelector("title");
    texts.set(each, title.textContent);
    title.remove();
  }
  document.addEventListener("pointermove", (event) => {
    const over = event.target.closest && event.target.closest(".s");
    const text = over && texts.get(over);
    tip.hidden = !text;
    if (!text) return;
    if (tip.textContent !== text) tip.textContent = text;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + box.height + 24 > innerHeight ? event.clientY - box.height - 10 : event.clientY + 16) + "px";
  });

  // Zoom: the chart becomes wider; all that is drawn stands in percent of it.
  let zoom = 1;
  const zoomTo = (wanted, clientX) => {
    const next = Math.max(1, Math.min(64, wanted));
    const from = board.getBoundingClientRect().left + labelWidth();
    const x = clientX === undefined ? (board.clientWidth - labelWidth()) / 2 : clientX - from;
    const place = (board.scrollLeft + x) / zoom;
    zoom = next;
    board.style.setProperty("--zoom", zoom);
    for (const each of [2, 4, 8, 16]) board.classList.toggle("at" + each, zoom >= each);
    board.scrollLeft = place * zoom - x;
  };
  document.getElementById("in").onclick = () => zoomTo(zoom * 2);
  document.getElementById("out").onclick = () => zoomTo(zoom / 2);
  document.getElementById("fit").onclick = () => zoomTo(1);
  board.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoomTo(zoom * (event.deltaY < 0 ? 1.25 : 0.8), event.clientX);
  }, { passive: false });

  // Choosing a row tells its story alone, with all below it and with what faults did meanwhile.
  const spaceless = (text) => text.replaceAll(" ", "_");
  const concerns = (item, subject) => item.dataset.s.split(" ").some((each) =>
    each === subject || each.startsWith(subject + "/") || each.startsWith(subject + "-") ||
    (subject.startsWith("slice/") && each.startsWith("worker/" + subject.slice(6) + "-")) ||
    (subject.startsWith("job/") && each.startsWith("task/" + subject.slice(4) + "/")));
  const find = document.getElementById("find");
  let subject = "";
  const tell = () => {
    const wanted = find.value.trim().toLowerCase();
    for (const item of items) {
      const told = (!subject || concerns(item, subject)) && (!wanted || item.textContent.toLowerCase().includes(wanted));
      item.classList.toggle("off", !told);
    }
  };
  const choose = (row) => {
    const again = !row || row.classList.contains("on");
    for (const each of rows) each.classList.toggle("on", !again && each === row);
    subject = again ? "" : spaceless(row.dataset.s);
    chosen.textContent = again ? "" : row.dataset.s.replace("/", " ");
    all.hidden = again;
    tell();
  };
  for (const row of rows) {
    row.addEventListener("click", () => choose(row));
    const label = row.querySelector(".label");
    label.tabIndex = 0;
    label.setAttribute("role", "button");
    label.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(row); });
  }
  find.addEventListener("input", tell);
  all.onclick = () => choose(null);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    find.value = "";
    choose(null);
  });

  // An event under the pointer shows its moment in the picture; a click brings it into view.
  const cursor = document.createElement("div");
  cursor.id = "cursor";
  cursor.hidden = true;
  const body = board.querySelector(".body");
  body.append(cursor);
  const began = Number(board.dataset.began), ended = Number(board.dataset.ended);
  const place = (item) => (Number(item.dataset.at) - began) / (ended - began) * trackWidth();
  for (const item of items) {
    item.addEventListener("pointerenter", () => { cursor.style.left = labelWidth() + place(item) + "px"; cursor.hidden = false; });
    item.addEventListener("pointerleave", () => { cursor.hidden = true; });
    if (item.classList.contains("broken")) item.parentElement.parentElement.scrollTop = item.offsetTop;
    item.addEventListener("click", () => { board.scrollLeft = place(item) - (board.clientWidth - labelWidth()) / 2; });
  }
})();
