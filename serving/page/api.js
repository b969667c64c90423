/**
 * What the page asks a server: the REST API of TensorFlow Serving, and which models there are.
 */

const LONGEST_WAIT = 30_000; // ms for an answer, as long as the server itself gives it
const PASSING = [0, 404, 408, 429, 502, 503]; // statuses that may be others a moment later, 0 being no answer at all
const JSON_BODY = { "Content-Type": "application/json" };
const NO_SIGNATURE = /^Serving signature (name|key).* not found/;

/** A question that was not answered: `status` is that of HTTP, or 0 where nothing came. */
export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  /** Whether it is worthwhile to ask again. */
  get isPassing() {
    return PASSING.includes(this.status);
  }
}

/** The names of the models that the server offers. Raises ServerError. */
export async function listModels(signal) {
  return (await ask("page/models", {}, signal)).models;
}

/** A model by its name, which is asked for a text at a time. All methods raise ServerError. */
export class Model {
  constructor(name) {
    this.name = name;
    this.lacks = new Set(); // signatures, so that they are asked for once
  }

  /** Translations of a text, the best first: [{text, score}]. */
  async translations(text, signal) {
    const several = await this.predict("alternatives", text, signal);
    if (several) return several.translations.map((text, place) => ({ text, score: several.scores[place] }));
    const best = await this.predict("translate", text, signal);
    if (!best) throw new ServerError(400, `Model ${this.name} has no signature "translate".`);
    return [{ text: best.translation, score: best.score }];
  }

  /** The outputs of the signature `explain`, or null if the model has none. */
  explanation(text, signal) {
    return this.predict("explain", text, signal);
  }

  /** The outputs of a signature for one text, or null if the model has no such signature. */
  async predict(signature, text, signal) {
    if (this.lacks.has(signature)) return null;
    const body = JSON.stringify({ signature_name: signature, instances: [{ text }] });
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

/** The JSON that comes from a path. An abort by `signal` goes through as it is; all else becomes a ServerError. */
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

/** The message of an error's body, or null if it is none of TensorFlow Serving's (a proxy's, say). */
function errorIn(text) {
  try {
    return JSON.parse(text).error ?? null;
  } catch {
    return null;
  }
}
