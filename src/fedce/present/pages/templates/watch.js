// Every two seconds, fetch the page's state and replace only the parts that have changed, so that the reader's scroll
// position, focus and selection stay.
const PAUSE = 2000, PATIENCE = 10000;
const lost = document.getElementById("connection");

async function update() {
  try {
    const answer = await fetch("/state", {signal: AbortSignal.timeout(PATIENCE)});
    if (!answer.ok) throw new Error(answer.statusText);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    label(fresh);
    unstack(); // Parts are compared as they came.
    for (const part of fresh.querySelectorAll("[data-part]")) {
      const shown = document.getElementById(part.id);
      if (shown.innerHTML !== part.innerHTML) shown.replaceChildren(...part.childNodes);
    }
    fit();
    document.title = fresh.getElementById("about").dataset.title;
    lost.textContent = "";
  } catch {
    if (!lost.textContent) {
      const since = new Date().toLocaleTimeString();
      lost.textContent = `Connection lost at ${since}: fedce watch has ended or does not answer. The run does not depend on it.`;
    }
  }
  setTimeout(update, PAUSE);
}

setTimeout(update, PAUSE);
