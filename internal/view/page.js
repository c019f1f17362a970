// Keeps the page up to date without loading it again, so that the focus, the selection and
// the scroll position stay. Without it the page loads itself again, by its meta element.
"use strict";
(() => {
  const period = 2000, patience = 10000;
  const stale = document.getElementById("stale");
  let good = Date.now();
  document.documentElement.classList.add("js");
  document.addEventListener("click", (e) => {
    if (e.target.className !== "copy") return;
    const command = e.target.previousElementSibling;
    getSelection().selectAllChildren(command); // without TLS there is no clipboard
    navigator.clipboard?.writeText(command.textContent);
  });

  // morph makes the node a like b, and touches only what differs.
  const morph = (a, b) => {
    if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName || a.id !== b.id) {
      a.replaceWith(document.importNode(b, true));
      return;
    }
    if (a.nodeType !== Node.ELEMENT_NODE) {
      if (a.data !== b.data) a.data = b.data;
      return;
    }
    for (const { name } of [...a.attributes]) if (!b.hasAttribute(name)) a.removeAttribute(name);
    for (const { name, value } of b.attributes) if (a.getAttribute(name) !== value) a.setAttribute(name, value);
    const olds = [...a.childNodes], news = [...b.childNodes];
    news.forEach((n, i) => i < olds.length ? morph(olds[i], n) : a.append(document.importNode(n, true)));
    olds.slice(news.length).forEach((n) => n.remove());
  };

  const update = async () => {
    try {
      // Not location.href: a URL with a name and password in it cannot be fetched.
      const answer = await fetch(location.origin + location.pathname + location.search, { cache: "no-store", signal: AbortSignal.timeout(patience) });
      if (!answer.ok) throw new Error(answer.status);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const id of ["verdict", "spoken", "facts", "made"]) morph(document.getElementById(id), next.getElementById(id));
      document.title = next.title;
      document.body.className = next.body.className;
      good = Date.now();
      stale.hidden = true;
    } catch {
      stale.textContent = "plegd has not answered for " + Math.round((Date.now() - good) / 1000) + " s: what is below is old.";
      stale.hidden = false;
      document.body.className = "gone";
      if (!document.title.startsWith("no answer")) document.title = "no answer - " + document.title;
    }
    setTimeout(update, period);
  };
  if ("live" in document.body.dataset) setTimeout(update, period);
})();
