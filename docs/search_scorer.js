// Which results a search shows first: the name that was typed as it is spelled, then guides, then explanations, then the reference.
// Among those of a kind, the page whose file is named after a word of the search.
var Scorer = {
  score: ([page, title, _anchor, _description, score, _file, kind]) => {
    const asked = (new URLSearchParams(window.location.search).get("q") ?? "").trim();
    const is_name = /[A-Z_.]/.test(asked) && (title === asked || title.endsWith("." + asked));
    if (is_name) return score + 4000;
    if (asked.toLowerCase().split(/\s+/).some((word) => word && page.includes(word))) score += 500;
    if (kind === "object" || page.startsWith("reference/claude_transport.")) return score;
    if (/^(index|tutorial|how-to)/.test(page)) return score + 3000;
    return score + (page.startsWith("explanation/") ? 2000 : 1000);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
