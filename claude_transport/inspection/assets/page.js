"use strict";
(() => {
  const holder = document.getElementById("data");
  const tape = JSON.parse(holder.textContent);
  holder.remove(); // free the megabytes of text: the parsed data is enough
  const LANES = ["user", "assistant", "tools", "control", "session"];
  const NAMES = ["User", "Assistant", "Tools", "Control", "Session"];
  const LEVELS = ["minor", "normal", "warning", "error"];
  const NAMED = ["id", "record", "t", "lane", "kind", "title", "gist", "level", "status", "seconds", "waited", "turn", "nested", "agent", "parent", "tokensIn", "tokensOut", "cost", "pieces", "parts"];
  const eventOf = (row) => Object.fromEntries(NAMED.map((name, place) => [name, row[place]]));
  const events = tape.events.map(eventOf);
  tape.events = null;
  const byId = new Map(events.map((event) => [event.id, event]));
  let whole = Math.max(tape.seconds, 0.001);
  const $ = (id) => document.getElementById(id);
  const list = $("list"), space = $("space"), details = $("details"), search = $("search"), canvas = $("overview");
  const state = { lanes: new Set([0, 1, 2, 3, 4]), problems: false, minor: false, turn: "", words: "", from: 0, to: whole, picked: null };
  let shown = [], drawn = [];

  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const took = (s) => {
    if (s === null) return "";
    if (s < 1) return (s >= 0.01 || s <= 0 ? (s * 1000).toFixed(0) : (s * 1000).toFixed(1)) + " ms";
    if (s < 60) return s.toFixed(1) + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + String(Math.floor(s % 60)).padStart(2, "0") + " s";
    return Math.floor(s / 3600) + " h " + String(Math.floor((s % 3600) / 60)).padStart(2, "0") + " min";
  };
  const clock = (t, step) => {
    const digits = step === undefined ? 3 : step < 0.001 ? 4 : step < 0.01 ? 3 : step < 0.1 ? 2 : step < 1 ? 1 : 0;
    if (whole < 60) return t.toFixed(digits);
    const minutes = Math.floor(t / 60), rest = (t - minutes * 60).toFixed(step === undefined ? 1 : Math.min(digits, 3));
    const padded = rest.padStart(rest.includes(".") ? rest.split(".")[1].length + 3 : 2, "0");
    return minutes < 60 ? minutes + ":" + padded : Math.floor(minutes / 60) + ":" + String(minutes % 60).padStart(2, "0") + ":" + padded;
  };
  const count = (n) => n.toLocaleString("en-US");
  const endOf = (event) => event.t + (event.seconds || 0);
  const startOf = (event) => event.t - (event.waited || 0);

  // Filtering
  const texts = new Map();
  const textOf = (event) => {
    let text = texts.get(event.id);
    if (text === undefined) {
      text = [event.title, event.gist, event.kind, event.status, ...event.parts.map((part) => part[1])].join("\n").toLowerCase();
      texts.set(event.id, text);
    }
    return text;
  };
  const wanted = (event) => state.lanes.has(event.lane)
    && (state.minor || event.level > 0) && (!state.problems || event.level > 1)
    && (state.turn === "" || event.turn === Number(state.turn))
    && (!state.words || textOf(event).includes(state.words));
  const inRange = (event) => endOf(event) >= state.from && startOf(event) <= state.to;
  const refresh = () => {
    drawn = events.filter(wanted);
    shown = state.from <= 0 && state.to >= whole ? drawn : drawn.filter(inRange);
    $("shown").textContent = shown.length === events.length ? count(events.length) + " events" : count(shown.length) + " of " + count(events.length) + " events";
    $("range").textContent = clock(state.from) + " – " + clock(state.to) + " s".slice(whole < 60 ? 0 : 2);
    layOut();
    paint();
  };

  // The list of rows
  let height = 30, first = -1, last = -1;
  const layOut = () => {
    height = matchMedia("(max-width: 820px)").matches ? 46 : 30;
    space.style.height = Math.max(shown.length * height, 1) + "px";
    first = last = -1;
    rows();
  };
  const rows = () => {
    const top = Math.max(0, Math.floor(list.scrollTop / height) - 8);
    const bottom = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / height) + 8);
    if (top === first && bottom === last) return;
    [first, last] = [top, bottom];
    const fresh = document.createDocumentFragment();
    for (let place = top; place < bottom; place++) fresh.append(rowOf(shown[place], place));
    if (!shown.length) fresh.append(make("div", "empty", tape.live && !events.length ? "Nothing was said yet." : "Nothing on this tape fits the filters."));
    space.replaceChildren(fresh);
    list.setAttribute("aria-activedescendant", state.picked === null ? "" : "event-" + state.picked);
  };
  const rowOf = (event, place) => {
    const row = make("div", "row " + LEVELS[event.level] + (event.nested ? " nested" : "") + (event.gist ? "" : " alone"));
    row.id = "event-" + event.id;
    row.style.top = place * height + "px";
    row.setAttribute("role", "option");
    row.setAttribute("aria-posinset", place + 1);
    row.setAttribute("aria-setsize", shown.length);
    row.setAttribute("aria-selected", event.id === state.picked);
    const what = make("span", "what");
    what.append(make("span", "dot " + (event.level > 1 ? LEVELS[event.level] : LANES[event.lane])), make("b", "", event.title));
    if (event.agent) what.append(make("small", "agent", event.agent));
    what.title = NAMES[event.lane] + ": " + event.title + agentOf(event);
    const status = ["", "ok", "done", "completed"].includes(event.status) ? "" : event.status + (event.gist ? " · " : "");
    const tokens = event.tokensIn === null ? "" : count(event.tokensIn + event.tokensOut);
    row.append(make("span", "time", clock(event.t)), what, make("span", "gist", status + event.gist),
      make("span", "number took", took(event.seconds)), make("span", "number tokens", tokens), barsOf(event));
    row.addEventListener("click", () => pick(event.id, true));
    return row;
  };
  const agentOf = (event) => !event.nested ? "" : ", of " + (event.agent ? "the subagent “" + event.agent + "”" : "a subagent") +
    (event.parent === null ? "" : ", started by event " + count(event.parent));
  const barsOf = (event) => {
    const bars = make("span", "bars " + LANES[event.lane]), span = state.to - state.from;
    const bar = (from, to, className) => {
      const left = Math.max(0, (from - state.from) / span), right = Math.min(1, (to - state.from) / span);
      if (right < 0 || left > 1) return;
      const piece = make("i", className);
      piece.style.left = "min(" + (left * 100).toFixed(3) + "%, 100% - 2px)";
      piece.style.width = (Math.max(0, right - left) * 100).toFixed(3) + "%";
      bars.append(piece);
    };
    if (event.waited) bar(startOf(event), event.t, "wait");
    bar(event.t, endOf(event), "");
    return bars;
  };
  const pick = (id, open) => {
    state.picked = id;
    first = -1;
    const place = shown.findIndex((event) => event.id === id);
    if (place >= 0) {
      const top = place * height;
      if (top < list.scrollTop) list.scrollTop = top;
      else if (top + height > list.scrollTop + list.clientHeight) list.scrollTop = top + height - list.clientHeight;
    }
    rows();
    show(byId.get(id), open);
    paint();
  };
  const move = (by) => {
    if (!shown.length) return;
    const now = shown.findIndex((event) => event.id === state.picked);
    const next = Math.min(shown.length - 1, Math.max(0, (now < 0 && by < 0 ? shown.length : now) + by));
    pick(shown[next].id, false);
  };
  const toProblem = (by) => {
    const now = shown.findIndex((event) => event.id === state.picked);
    for (let place = now + by; place >= 0 && place < shown.length; place += by) {
      if (shown[place].level > 1) return pick(shown[place].id, false);
    }
  };
  const goTo = (id) => {
    const event = byId.get(id);
    if (!event) return;
    if (!wanted(event) || !inRange(event)) reset();
    pick(id, true);
    list.focus({ preventScroll: true });
    $("timeline").scrollIntoView({ block: "start" });
  };
  const reset = () => {
    Object.assign(state, { lanes: new Set([0, 1, 2, 3, 4]), problems: false, minor: true, turn: "", words: "", from: 0, to: whole });
    search.value = "";
    $("turn").value = "";
    press();
    refresh();
  };

  // The details
  const show = (event, open) => {
    details.classList.toggle("open", Boolean(open && event));
    if (!event) return details.replaceChildren(make("p", "empty", "Select an event to see what was said."));
    const header = make("header");
    const level = event.level > 1 ? LEVELS[event.level] : ["ok", "done", "completed", "allowed"].includes(event.status) ? "good" : "";
    header.append(make("span", "dot " + LANES[event.lane]), make("h2", "", event.title));
    if (event.status) header.append(make("span", "badge " + level, event.status));
    const close = make("button", "quiet", "Close");
    close.id = "close";
    close.type = "button";
    close.addEventListener("click", back);
    header.append(close);
    const facts = make("dl");
    const fact = (name, value) => facts.append(make("dt", "", name), make("dd", "", value));
    fact("Lane", NAMES[event.lane] + agentOf(event) + " · " + event.kind);
    fact("At", clock(event.t) + (whole < 60 ? " s" : "") + " · record " + count(event.record) + (event.turn === null ? "" : " · turn " + event.turn));
    if (event.seconds !== null) fact("Took", took(event.seconds));
    if (event.waited !== null) fact("Waited", took(event.waited) + " for the model's first words");
    if (event.pieces) fact("Streamed", "in " + count(event.pieces) + (event.pieces === 1 ? " piece" : " pieces"));
    if (event.tokensIn !== null) fact("Tokens", count(event.tokensIn) + " in, " + count(event.tokensOut) + " out");
    if (event.cost !== null) fact("Cost", "$" + event.cost.toFixed(event.cost >= 1 ? 2 : 6));
    details.replaceChildren(header, facts, ...event.parts.map(partOf));
    details.scrollTop = 0;
  };
  const partOf = ([label, text, chars]) => {
    const part = make("section", "part"), title = make("h3");
    title.append(make("span", "", label), make("small", "", count(chars) + " characters"));
    const copy = make("button", "quiet", "Copy");
    copy.type = "button";
    copy.addEventListener("click", () => copyOut(text, copy));
    title.append(copy);
    const pre = make("pre");
    pre.tabIndex = 0;
    pre.append(...marked(text));
    part.append(title, pre);
    if (chars > text.length) part.append(make("p", "cut", "Cut: the first " + count(text.length) + " of " + count(chars) + " characters are on this page; the tape may have the rest."));
    return part;
  };
  const marked = (text) => {
    if (!state.words) return [text];
    const pieces = [], low = text.toLowerCase();
    if (low.length !== text.length) return [text]; // some letters change their length in lower case: positions would be wrong
    let from = 0;
    for (let at = low.indexOf(state.words); at >= 0 && pieces.length < 2000; at = low.indexOf(state.words, from)) {
      pieces.push(text.slice(from, at), make("mark", "", text.slice(at, at + state.words.length)));
      from = at + state.words.length;
    }
    pieces.push(text.slice(from));
    return pieces;
  };
  const copyOut = (text, button) => {
    const area = make("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand("copy") ? "Copied" : "Cannot copy";
    area.remove();
  };
  const back = () => {
    details.classList.remove("open");
    list.focus({ preventScroll: true });
  };

  // The overview
  const colors = () => {
    const probe = make("span", "dot");
    probe.hidden = true;
    document.body.append(probe);
    const found = {};
    for (const name of [...LANES, "error", "warning"]) {
      probe.className = "dot " + name;
      found[name] = getComputedStyle(probe).backgroundColor;
    }
    probe.remove();
    const style = getComputedStyle(details);
    return { ...found, line: style.borderTopColor, text: style.color, dim: getComputedStyle($("shown")).color };
  };
  let drag = null;
  const LEFT = () => (canvas.clientWidth < 600 ? 8 : 74);
  const xOf = (t, width) => LEFT() + ((t - state.from) / (state.to - state.from)) * (width - LEFT() - 4);
  const tOf = (x) => Math.min(whole, Math.max(0, state.from + ((x - LEFT()) / (canvas.clientWidth - LEFT() - 4)) * (state.to - state.from)));
  const paint = () => {
    const width = canvas.clientWidth, tall = canvas.clientHeight, scale = devicePixelRatio || 1;
    if (!width) return;
    canvas.width = width * scale;
    canvas.height = tall * scale;
    const pen = canvas.getContext("2d"), color = colors(), axis = 17, lane = (tall - axis) / 5;
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    tape.turns.forEach(([number, t, seconds, good], place) => {
      const from = Math.max(LEFT(), xOf(t, width)), to = Math.min(width, xOf(t + seconds, width));
      if (to < LEFT() || from > width) return;
      pen.globalAlpha = place % 2 ? 0.05 : 0.1;
      pen.fillStyle = good ? color.text : color.error;
      pen.fillRect(from, 0, Math.max(1, to - from), tall - axis);
      pen.globalAlpha = 1;
    });
    pen.fillStyle = color.dim;
    if (LEFT() > 20) NAMES.forEach((name, place) => pen.fillText(name, 4, lane * (place + 0.5)));
    const span = state.to - state.from, rough = span / Math.max(2, Math.floor(width / (width < 600 ? 60 : 110)));
    const base = 10 ** Math.floor(Math.log10(rough)), nice = rough > 5 ? [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400] : [];
    const step = [...nice, 1, 2, 5, 10].map((n, place) => (place < nice.length ? n : n * base)).find((n) => n >= rough);
    pen.textAlign = "center";
    for (let t = Math.ceil(state.from / step) * step; t <= state.to; t += step) {
      const x = xOf(t, width);
      pen.globalAlpha = 0.6;
      pen.fillStyle = color.line;
      pen.fillRect(x, 0, 1, tall - axis);
      pen.globalAlpha = 1;
      pen.fillStyle = color.dim;
      if (x > LEFT() + 14 && x < width - 18) pen.fillText(clock(t, step), x, tall - axis / 2);
    }
    pen.textAlign = "left";
    for (const serious of [false, true]) {
      for (const event of drawn) {
        if (event.level > 1 !== serious || !inRange(event)) continue;
        const y = lane * event.lane + lane * 0.22, tallness = lane * 0.56;
        const from = Math.max(LEFT(), xOf(event.t, width)), to = Math.min(width, xOf(endOf(event), width));
        if (event.waited) {
          const begin = Math.max(LEFT(), xOf(startOf(event), width));
          pen.globalAlpha = 0.28; // the wait for the model, in its own lane, even when its answer begins with a tool call
          pen.fillStyle = color.assistant;
          pen.fillRect(begin, lane * 1.22, Math.max(0, from - begin), tallness);
        }
        pen.fillStyle = serious ? color[LEVELS[event.level]] : color[LANES[event.lane]];
        pen.globalAlpha = event.level === 0 ? 0.45 : 0.9;
        if (to >= LEFT() && from <= width) pen.fillRect(from, y, Math.max(2, to - from), tallness);
      }
    }
    pen.globalAlpha = 1;
    const picked = byId.get(state.picked);
    if (picked && inRange(picked)) {
      pen.fillStyle = color.text;
      pen.fillRect(Math.max(LEFT(), xOf(picked.t, width)) - 0.5, 0, 1.5, tall - axis);
    }
    if (drag && drag.moved) {
      pen.globalAlpha = 0.18;
      pen.fillStyle = color.user;
      pen.fillRect(Math.min(drag.from, drag.to), 0, Math.abs(drag.to - drag.from), tall - axis);
      pen.globalAlpha = 1;
    }
  };
  const zoomTo = (from, to) => {
    const least = Math.min(whole, Math.max(whole / 1e6, 0.001));
    const span = Math.min(whole, Math.max(least, to - from)), begin = Math.min(whole - span, Math.max(0, from));
    Object.assign(state, { from: begin, to: begin + span });
    refresh();
  };
  const zoom = (factor) => {
    const picked = byId.get(state.picked), span = (state.to - state.from) * factor;
    const middle = picked && inRange(picked) ? picked.t : (state.from + state.to) / 2;
    zoomTo(middle - span / 2, middle + span / 2);
  };
  const place = (pointer) => pointer.clientX - canvas.getBoundingClientRect().left;
  canvas.addEventListener("pointerdown", (pointer) => {
    drag = { from: place(pointer), to: place(pointer), moved: false };
    canvas.setPointerCapture(pointer.pointerId);
  });
  canvas.addEventListener("pointermove", (pointer) => {
    if (!drag) return;
    drag.to = place(pointer);
    drag.moved = drag.moved || Math.abs(drag.to - drag.from) > 4;
    if (drag.moved) paint();
  });
  canvas.addEventListener("pointerup", (pointer) => {
    if (!drag) return;
    const { from, to, moved } = drag;
    drag = null;
    if (moved) return zoomTo(tOf(Math.min(from, to)), tOf(Math.max(from, to)));
    const t = tOf(from), row = Math.floor(((pointer.clientY - canvas.getBoundingClientRect().top) / (canvas.clientHeight - 17)) * 5);
    const away = (event) => Math.max(event.t - t, t - endOf(event), 0) + (event.lane === row ? 0 : whole);
    let best = null;
    for (const event of shown) if (best === null || away(event) < away(best)) best = event;
    if (best) pick(best.id, false);
  });
  canvas.addEventListener("pointercancel", () => { drag = null; paint(); });
  canvas.addEventListener("dblclick", () => zoomTo(0, whole));
  canvas.addEventListener("keydown", (key) => {
    const span = state.to - state.from;
    if (key.key === "ArrowLeft") zoomTo(state.from - span / 5, state.to - span / 5);
    else if (key.key === "ArrowRight") zoomTo(state.from + span / 5, state.to + span / 5);
    else return;
    key.preventDefault();
  });

  // Controls
  const perLane = () => LANES.map((_, lane) => count(events.filter((event) => event.lane === lane).length));
  const chips = LANES.map((name, lane) => {
    const chip = make("button", "chip");
    chip.type = "button";
    chip.id = "lane-" + name;
    chip.append(make("span", "dot " + name), make("span", "", NAMES[lane]), make("i", "", perLane()[lane]));
    chip.addEventListener("click", () => {
      if (!state.lanes.delete(lane)) state.lanes.add(lane);
      press();
      refresh();
    });
    $("lanes").append(chip);
    return chip;
  });
  const press = () => {
    chips.forEach((chip, lane) => chip.setAttribute("aria-pressed", state.lanes.has(lane)));
    $("problems").setAttribute("aria-pressed", state.problems);
    $("minor").setAttribute("aria-pressed", state.minor);
  };
  for (const name of ["problems", "minor"]) {
    $(name).addEventListener("click", () => {
      state[name] = !state[name];
      press();
      refresh();
    });
  }
  const nameTurns = () => {
    $("turn").replaceChildren(new Option("All turns", ""), ...tape.turns.map(([number]) => new Option("Turn " + number, number)));
    $("turn").value = state.turn;
  };
  nameTurns();
  $("turn").addEventListener("change", () => { state.turn = $("turn").value; refresh(); });
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { state.words = search.value.trim().toLowerCase(); list.scrollTop = 0; refresh(); show(byId.get(state.picked), false); }, events.length > 5000 ? 200 : 60);
  });
  $("in").addEventListener("click", () => zoom(0.5));
  $("out").addEventListener("click", () => zoom(2));
  $("whole").addEventListener("click", () => zoomTo(0, whole));
  $("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark"
      || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    paint();
  });
  list.addEventListener("scroll", rows);
  list.addEventListener("keydown", (key) => {
    const page = Math.max(1, Math.floor(list.clientHeight / height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (key.key === "Enter" && state.picked !== null) { show(byId.get(state.picked), true); details.focus(); }
    else if (key.key in steps) move(steps[key.key]);
    else return;
    key.preventDefault();
  });
  document.addEventListener("keydown", (key) => {
    if (key.ctrlKey || key.metaKey || key.altKey) return;
    if (key.key === "Escape") {
      if (key.target === search && search.value) { search.value = ""; search.dispatchEvent(new Event("input")); } else back();
      return;
    }
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(key.target.tagName)) return;
    const acts = { "/": () => search.focus(), n: () => toProblem(1), p: () => toProblem(-1), "+": () => zoom(0.5), "-": () => zoom(2), 0: () => zoomTo(0, whole) };
    if (key.key in acts) { acts[key.key](); key.preventDefault(); }
  });
  document.addEventListener("click", (click) => {
    const link = click.target.closest("a[href^='#event-']");
    if (link) { click.preventDefault(); goTo(Number(link.hash.slice(7))); }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  new ResizeObserver(() => { layOut(); paint(); }).observe(list);
  $("timeline").hidden = false;
  press();
  refresh();
  show(null, false);
  if (/^#event-\d+$/.test(location.hash)) goTo(Number(location.hash.slice(7)));
  document.documentElement.dataset.ready = events.length;
  if (!tape.live) return;

  // A running session: the gateway sends what has changed
  const MOST = 20000; // events on the page; of more, those in the middle are left out
  const HERE = location.pathname.replace(/\/+$/, ""), STORE = "observer of " + HERE;
  const SILENCE = 60000; // ms; the gateway sends a heartbeat every 20 s
  let revision = 0, token = "";
  const link = (text, quietly) => {
    $("link").textContent = text;
    $("link").classList.toggle("quietly", Boolean(quietly));
  };
  const merge = (change) => {
    const atEnd = state.to >= whole, atBottom = list.scrollTop + list.clientHeight >= list.scrollHeight - 4;
    [revision, tape.turns, whole] = [change.revision, change.turns, Math.max(change.seconds, 0.001)];
    for (const row of change.events) {
      const event = eventOf(row), known = byId.get(event.id);
      texts.delete(event.id);
      if (known) Object.assign(known, event);
      else { byId.set(event.id, event); events.push(event); }
    }
    events.sort((one, other) => one.t - other.t || one.id - other.id);
    if (events.length > MOST) for (const event of events.splice(MOST / 2, events.length - MOST)) { byId.delete(event.id); texts.delete(event.id); }
    state.to = atEnd ? whole : Math.min(state.to, whole);
    perLane().forEach((number, lane) => { chips[lane].querySelector("i").textContent = number; });
    if ($("turn").options.length !== tape.turns.length + 1) nameTurns();
    figures(change);
    refresh();
    if (atBottom) { list.scrollTop = list.scrollHeight; rows(); }
    if (change.events.some((row) => row[0] === state.picked)) {
      const top = details.scrollTop;
      show(byId.get(state.picked), details.classList.contains("open"));
      details.scrollTop = top;
    }
    document.documentElement.dataset.revision = revision;
  };
  const figures = (change) => { // the gateway has escaped every word in this markup, and the policy admits no code in it
    const nameOf = (fold) => fold.querySelector("summary").firstChild.textContent;
    const folds = () => [...$("summary").querySelectorAll("details")];
    const open = new Map(folds().map((fold) => [nameOf(fold), fold.open]));
    $("verdict").innerHTML = change.verdict;
    $("summary").innerHTML = change.summary;
    for (const fold of folds()) if (open.has(nameOf(fold))) fold.open = open.get(nameOf(fold));
  };
  const take = (text) => { // one event; returns whether it was the last one
    let kind = "message";
    const data = [];
    for (const line of text.split("\n")) {
      if (line.startsWith("event: ")) kind = line.slice(7);
      else if (line.startsWith("data: ")) data.push(line.slice(6));
    }
    if (kind === "message" && data.length) merge(JSON.parse(data.join("\n")));
    return kind === "end";
  };
  const read = async (answer, isHeard) => {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = [""]; ;) {
      const { value, done } = await reader.read();
      isHeard();
      if (done) return false;
      rest.push(value);
      if (!(rest.at(-2).slice(-1) + value).includes("\n\n")) continue; // most of a long event
      const whole = rest.join("").split("\n\n");
      rest = ["", whole.pop()];
      for (const text of whole) if (take(text)) return true;
    }
  };
  const ask = async () => {
    const asking = new AbortController();
    let silence = 0;
    const isHeard = () => { // a network may be gone without a word
      clearTimeout(silence);
      silence = setTimeout(() => asking.abort(), SILENCE);
    };
    isHeard();
    try { return await watch(asking.signal, isHeard); } finally { clearTimeout(silence); }
  };
  const watch = async (signal, isHeard) => { // returns whether to ask again
    const headers = { accept: "text/event-stream" };
    if (token) headers.authorization = "Bearer " + token;
    if (revision) headers["last-event-id"] = String(revision);
    const answer = await fetch(HERE + "/timeline", { headers, cache: "no-store", credentials: "omit", redirect: "error", signal });
    if (answer.ok) {
      link("Connected.", true);
      if (!(await read(answer, isHeard))) return true;
      link("The session has ended.", true);
      return false;
    }
    const said = (await answer.text()).trim().slice(0, 300);
    if (answer.status === 401) {
      keep("");
      $("door").hidden = false;
      $("timeline").hidden = !revision;
      link(token ? "This token is not accepted, or not any more." : "Watching this session needs a token.");
      return false;
    }
    link("The gateway refuses: " + said);
    return answer.status === 429 || answer.status >= 500;
  };
  const follow = async () => {
    for (let wait = 500; ; wait = Math.min(wait * 2, 10000)) {
      const before = revision;
      try {
        if (!(await ask())) return;
        link("The connection has ended. Trying again …");
      } catch {
        link("The gateway cannot be reached. Trying again …");
      }
      if (revision > before) wait = 500;
      await new Promise((done) => { setTimeout(done, wait); });
    }
  };
  $("door").addEventListener("submit", (submit) => {
    submit.preventDefault();
    enter($("token").value.trim());
  });
  const enter = (given) => {
    token = given;
    $("token").value = "";
    $("door").hidden = true;
    $("timeline").hidden = false;
    if (revision) forget();
    keep(token);
    follow();
  };
  const forget = () => { // another token may see more of the session, or less
    [revision, events.length, state.picked] = [0, 0, null];
    byId.clear();
    texts.clear();
    show(null, false);
  };
  const keep = (text) => { // in this tab: a reload needs it
    try {
      if (text) sessionStorage.setItem(STORE, text);
      else sessionStorage.removeItem(STORE);
    } catch { /* the browser stores nothing: a reload asks for the token again */ }
  };
  const kept = () => {
    try { return sessionStorage.getItem(STORE) || ""; } catch { return ""; }
  };
  $("whole").textContent = "Whole session";
  const name = "session " + HERE.split("/").at(-1);
  document.title = name;
  document.querySelector("h1 .name").textContent = name;
  const given = location.hash.startsWith("#event-") ? "" : location.hash.slice(1);
  if (given) history.replaceState(null, "", location.pathname); // out of sight, and out of the history
  enter(given || kept());
})();
