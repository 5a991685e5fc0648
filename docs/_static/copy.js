// A button that copies a piece of code. What a program printed has none.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll('div[class*="highlight-"]:not(.highlight-text) > .highlight')) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const code = block.querySelector("pre").textContent.replace(/\n$/, "").replace(/^\$ /gm, "");
      try {
        await navigator.clipboard.writeText(code);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    block.prepend(button);
  }
});
