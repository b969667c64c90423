/**
 * The page: translates the text as the user types, and explains the translation.
 */

import { Alternatives } from "./alternatives.js";
import { listLanguages, listModels, Model, ServerError } from "./api.js";
import { Details } from "./details.js";
import { HeatMap } from "./heat_map.js";
import { Keeping } from "./keeping.js";
import { Languages } from "./languages.js";
import { Pointing } from "./pointing.js";
import { SourceWords, TargetWords } from "./prose.js";
import { explanationOf } from "./words.js";

const PAUSE = 120; // ms without a key before the page translates
const SILENCE = 1000; // ms without a change before a screen reader says the translation
const [FIRST_RETRY, LAST_RETRY] = [1000, 8000]; // ms between retries while the server does not answer

const [box, result, target, attention] = ["source", "result", "target", "attention"].map(byId);
const [trouble, choice, picker] = ["trouble", "model-choice", "model"].map(byId);
const alternatives = new Alternatives(byId("alternatives"));
const sourceWords = new SourceWords(byId("source-words"));
const targetWords = new TargetWords(target);
const heatMap = new HeatMap(attention);
const views = [sourceWords, targetWords, new Details(byId("details")), heatMap];
const pointing = new Pointing(views);
const keeping = new Keeping(byId("keeping"), translateSoon);
const languages = new Languages(byId("languages"), turn);

let model = null;
let request = new AbortController();
let next = 0; // timer of the next translation
let failures = 0; // consecutive failures
let shown = ""; // the text of the translation on the page
let announcement = 0; // timer of the next announcement

function byId(id) {
  return document.getElementById(id);
}

/** Translates the text in the box, and cancels the previous request. */
async function translate() {
  clearTimeout(next);
  request.abort();
  request = new AbortController();
  const { signal } = request;
  result.ariaBusy = true;
  try {
    model ??= await chooseModel(signal);
    const text = box.value;
    const hidden = keeping.hide(text);
    const isBlank = !text.trim();
    if (hidden.words.length) await model.checkPlaceholders(signal);
    const [translations, explained] = await Promise.all([
      isBlank ? [] : model.translations(hidden.text, signal),
      isBlank ? null : model.explanation(hidden.text, signal),
    ]);
    if (signal.aborted) return;
    const restored = translations.map((each) => ({ ...each, text: hidden.restore(each.text) }));
    show(text, restored, explained && explanationOf(hidden.restoreExplanation(explained)));
    calm();
  } catch (error) {
    if (signal.aborted) return;
    complain(error);
  }
  result.ariaBusy = false;
}

function show(text, translations, explanation) {
  const translation = translations[0]?.text ?? "";
  const texts = [text, translation, translation, translation];
  shown = text;
  views.forEach((view, place) => view.show(texts[place], explanation));
  alternatives.show(translations);
  pointing.reset();
  byId("legend").hidden = !explanation?.target.length;
  byId("copy").hidden = !translation || !navigator.clipboard;
  clearTimeout(announcement);
  announcement = setTimeout(() => (byId("announcement").textContent = translation), SILENCE);
}

/** Returns the model of the address's ?model=, or the first model of the server. Several models, and several languages
 * of a model, give a choice. */
async function chooseModel(signal) {
  const asked = new URLSearchParams(location.search).get("model");
  const offered = await listModels(signal).catch((error) => {
    if (asked && error.status === 404) return []; // the server does not list its models
    throw error;
  });
  const names = [...new Set([...offered, asked])].filter(Boolean);
  if (!names.length) throw new ServerError(503, "It offers no model.");
  picker.replaceChildren(...names.map((name) => new Option(name)));
  picker.value = asked || names[0];
  choice.hidden = names.length === 1;
  const listed = await listLanguages(picker.value, signal).catch((error) => {
    if (failures < 2) throw error;
    return []; // without the gateway that lists them, the model still has its default direction
  });
  languages.offer(picker.value, listed);
  markLanguages();
  return new Model(picker.value, languages);
}

/** Tells the browser the languages of the texts, for its voices, its fonts and its spelling. */
function markLanguages() {
  const { source_lang: source = "", target_lang: translation = "" } = languages.inputs;
  box.lang = byId("source-words").lang = source;
  target.lang = byId("announcement").lang = translation;
}

/** Translates between other languages. After a swap, the translation is the text, unless the box has a newer one. */
function turn(isSwapped) {
  markLanguages();
  if (isSwapped && box.value === shown && target.textContent.trim()) box.value = target.textContent;
  translateSoon();
}

function complain(error) {
  if (!(error instanceof ServerError)) throw error;
  model = null; // the server may soon serve another version
  const what = error.status === 0 ? "does not answer" : error.isPassing ? "cannot answer now" : "refuses this text";
  const message = `The server ${what}: ${error.message}`;
  if (byId("message").textContent !== message) byId("message").textContent = message; // read aloud once
  byId("retrying").hidden = !error.isPassing;
  document.body.classList.add("troubled");
  trouble.hidden = false;
  if (error.isPassing) next = setTimeout(translate, Math.min(LAST_RETRY, FIRST_RETRY * 2 ** failures++));
}

function calm() {
  failures = 0;
  trouble.hidden = true;
  document.body.classList.remove("troubled");
}

function translateSoon() {
  request.abort(); // its answer would belong to another text
  sourceWords.show(box.value, null);
  clearTimeout(next);
  next = setTimeout(translate, PAUSE);
}

box.addEventListener("input", translateSoon);
picker.addEventListener("change", () => {
  model = null;
  history.replaceState(null, "", `?model=${encodeURIComponent(picker.value)}`);
  translate();
});
byId("again").addEventListener("click", translate);
window.addEventListener("online", translate);
byId("numbers").addEventListener("change", (event) => document.body.classList.toggle("numbered", event.target.checked));
byId("copy").addEventListener("click", async (event) => {
  await navigator.clipboard.writeText(target.textContent);
  event.target.textContent = "Copied";
  setTimeout(() => (event.target.textContent = "Copy"), SILENCE);
});

for (const root of [target, attention]) pointing.hear(root);
document.addEventListener("keydown", (event) => {
  if (event.isComposing || event.defaultPrevented) return;
  if (event.key === "Escape") box.focus();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) targetWords.focus(0);
  if (event.key === "ArrowDown" && target.contains(event.target)) heatMap.focus(Number(event.target.dataset.target));
  if (event.key === "ArrowUp" && attention.contains(event.target)) targetWords.focus(Number(event.target.dataset.target));
});

translate();
