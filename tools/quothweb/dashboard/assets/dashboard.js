// What needs no server: the theme, the menu of narrow screens, copying, dialogs, times of the viewer.
(() => {
  const KEY = "quoth-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");

  const stored = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // a browser that keeps nothing follows the system
    }
  };

  function applyTheme() {
    const dark = stored() ? stored() === "dark" : system.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    const button = document.getElementById("theme");
    if (button) button.setAttribute("aria-pressed", String(dark));
  }

  function toggleTheme() {
    const dark = document.documentElement.dataset.theme !== "dark";
    try {
      if (dark === system.matches) localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, dark ? "dark" : "light");
    } catch {
      document.documentElement.dataset.theme = dark ? "dark" : "light";
      return;
    }
    applyTheme();
  }

  function showMenu(open) {
    const button = document.getElementById("menu");
    document.documentElement.classList.toggle("menu-open", open);
    button.setAttribute("aria-expanded", String(open));
    if (open) document.querySelector("#nav a").focus();
    else if (document.getElementById("nav").contains(document.activeElement)) button.focus();
  }

  async function copy(button) {
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea"); // a page over plain HTTP has no clipboard
      area.value = text;
      area.setAttribute("aria-hidden", "true");
      area.className = "unseen";
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
    }
    window.quothSay("Copied");
  }

  let silence = 0;
  window.quothSay = (text) => {
    const said = document.getElementById("said");
    said.textContent = text;
    clearTimeout(silence);
    silence = setTimeout(() => (said.textContent = ""), 6000);
  };

  const showDialog = (dialog) => {
    for (const field of dialog.querySelectorAll("input")) field.value = field.defaultValue;
    dialog.showModal();
  };

  document.addEventListener("click", (event) => {
    const target = event.target.closest("button, a, dialog");
    if (!target) return;
    if (target.id === "theme") toggleTheme();
    else if (target.id === "menu") showMenu(target.getAttribute("aria-expanded") !== "true");
    else if (target.dataset.copy !== undefined) copy(target);
    else if (target.dataset.dialog) showDialog(document.getElementById(target.dataset.dialog));
    else if (target.dataset.close !== undefined) target.closest("dialog").close();
    else if (target.classList.contains("skip")) {
      event.preventDefault();
      document.getElementById("main").focus();
    }
  });

  // Fields that fill another one: nothing is loaded before the form is sent, by Go, Enter or the end of a drag.
  const timeText = (pointer) =>
    `${new Date(Math.floor(pointer / 1e6) * 1e3).toISOString().slice(0, 19)}.${String(pointer % 1e6).padStart(6, "0")}Z`;

  document.addEventListener("input", (event) => {
    const { fills, first, last } = event.target.dataset || {};
    if (!fills) return;
    let text = event.target.value && `${event.target.value}Z`;
    if (event.target.type === "range") {
      text = timeText(Number(first) + Math.round(((last - first) * event.target.value) / event.target.max));
      event.target.setAttribute("aria-valuetext", text);
    }
    event.target.form.elements[fills].value = text;
  });
  document.addEventListener("pointerup", (event) => {
    if (event.target.type === "range" && event.target.dataset.fills) event.target.form.requestSubmit();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && document.documentElement.classList.contains("menu-open")) showMenu(false);
  });
  system.addEventListener("change", applyTheme);
  applyTheme();
  const waiting = new MutationObserver(() => {
    if (!document.getElementById("theme")) return;
    waiting.disconnect();
    applyTheme();
    followSession();
  });
  waiting.observe(document, { childList: true, subtree: true });

  // A session that has ended is one that the page has to begin anew; the socket alone cannot see the reason.
  function followSession() {
    if (!window.socket) return;
    window.socket.on("connect_error", async () => {
      const answer = await fetch(location.href, { method: "HEAD" }).catch(() => null);
      if (answer && [401, 403].includes(answer.status)) location.reload();
    });
  }
})();
