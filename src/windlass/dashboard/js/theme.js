// Light or dark before the first paint: what was chosen here, else what the system says.
{
  let chosen = null;
  try { chosen = localStorage.getItem("windlass.theme"); } catch { /* storage is switched off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
