// Light or dark: what the reader chose here, or else what the system prefers.
const KEY = "onebyone-theme";

export function applyTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = localStorage.getItem(KEY) ?? (dark ? "dark" : "light");
}

export function switchTheme() {
  localStorage.setItem(KEY, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  applyTheme();
}
