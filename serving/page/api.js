/**
 * The page's requests to a server: the REST API of TensorFlow Serving, and the list of models.
 */

const LONGEST_WAIT = 30_000; // ms for an answer, the same limit as the server's
const PASSING = [0, 404, 408, 429, 502, 503]; // statuses worth a retry; 0 means no answer
const JSON_BODY = { "Content-Type": "application/json" };
const PLACEHOLDER = "⟦0⟧"; // a model with placeholders reads it as one piece
const NO_PLACEHOLDERS = "This model has no placeholders, so it cannot keep words: train one with --protect 0.1.";
const NO_SIGNATURE = /^Serving signature (name|key).* not found/;

/** A failed request. `status` is the HTTP status, or 0 without an answer. */
export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  /** Whether a retry is worthwhile. */
  get isPassing() {
    return PASSING.includes(this.status);
  }
}

/** Returns the names of the server's models. Throws ServerError. */
export async function listModels(signal) {
  return (await ask("page/models", {}, signal)).models;
}

/** Returns the languages of a model, [{code, name, targets}]: none if the server does not list them. Throws ServerError. */
export async function listLanguages(model, signal) {
  return ask(`languages?model=${encodeURIComponent(model)}`, {}, signal).catch((error) => {
    if (error instanceof ServerError && (error.status === 404 || !error.isPassing)) return [];
    throw error;
  });
}

/** A model, which translates one text per request, between the `languages` chosen. All methods throw ServerError. */
export class Model {
  constructor(name, languages) {
    this.name = name;
    this.languages = languages;
    this.lacks = new Set(); // missing signatures, which the page does not request again
    this.hasPlaceholders = false; // not known yet
  }

  /** Asks the model once whether it has placeholders, as serving/connections.py does. Throws ServerError if it has none. */
  async checkPlaceholders(signal) {
    this.hasPlaceholders ||= (await this.explanation(PLACEHOLDER, signal))?.source_pieces.includes(PLACEHOLDER);
    if (!this.hasPlaceholders) throw new ServerError(400, NO_PLACEHOLDERS);
  }

  /** Returns the translations of a text, best first: [{text, score}]. */
  async translations(text, signal) {
    const several = await this.predict("alternatives", text, signal);
    if (several) return several.translations.map((text, place) => ({ text, score: several.scores[place] }));
    const best = await this.predict("translate", text, signal);
    if (!best) throw new ServerError(400, `Model ${this.name} has no signature "translate".`);
    return [{ text: best.translation, score: best.score }];
  }

  /** Returns the outputs of the signature `explain`, or null if the model has none. */
  explanation(text, signal) {
    return this.predict("explain", text, signal);
  }

  /** Returns the outputs of a signature for one text, or null if the model has no such signature. */
  async predict(signature, text, signal) {
    if (this.lacks.has(signature)) return null;
    const body = JSON.stringify({ signature_name: signature, instances: [{ text, ...this.languages.inputs }] });
    try {
      const path = `v1/models/${encodeURIComponent(this.name)}:predict`;
      return (await ask(path, { method: "POST", headers: JSON_BODY, body }, signal)).predictions[0];
    } catch (error) {
      if (error.status !== 400 || !NO_SIGNATURE.test(error.message)) throw error;
      this.lacks.add(signature);
      return null;
    }
  }
}

/** Returns the JSON of a path. An abort by `signal` stays an AbortError; all other errors become a ServerError. */
async function ask(path, options, signal) {
  const patience = AbortSignal.timeout(LONGEST_WAIT);
  try {
    const response = await fetch(path, { ...options, signal: AbortSignal.any([signal, patience]) });
    const text = await response.text();
    if (!response.ok) throw new ServerError(response.status, errorIn(text) ?? `Status ${response.status}.`);
    return JSON.parse(text);
  } catch (error) {
    if (signal.aborted || error instanceof ServerError) throw error;
    if (error instanceof SyntaxError) throw new ServerError(500, "The server's answer is not JSON.");
    throw new ServerError(0, patience.aborted ? "It takes too long." : "No connection.");
  }
}

/** Returns the message of an error's body, or null if the body is not TensorFlow Serving's (for example a proxy's). */
function errorIn(text) {
  try {
    return JSON.parse(text).error ?? null;
  } catch {
    return null;
  }
}
