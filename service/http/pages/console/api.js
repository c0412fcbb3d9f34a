// The service's public API: requests, problems, the same request for curl. There is no other way to the service.

const KEPT = "nextitem-key";

/** The storage of this tab; none where the browser forbids it. */
const storage = (() => {
  try {
    return sessionStorage;
  } catch {
    return null;
  }
})();

// Kept here, and in the tab's storage where its user asks for that. Nowhere else.
let key = storage?.getItem(KEPT) ?? "";

/** Use an API key from now on; an empty one forgets it. With `keep` it lasts until the tab is closed. */
export function setKey(value, keep = false) {
  key = value.trim();
  storage?.removeItem(KEPT);
  if (key && keep) storage?.setItem(KEPT, key);
}

export const hasKey = () => key !== "";

/** An error as the service tells it (RFC 9457), or what stands for one where nothing answers. */
export class Problem extends Error {
  constructor({ type = "", status = 0, title, detail = "", errors = [], request_id = "" }) {
    super(title);
    Object.assign(this, { type, status, title, detail, errors, requestId: request_id });
  }

  /** Whether the same request will be answered in a moment. */
  get passes() {
    return this.type.endsWith(":search-not-ready");
  }

  /** Whether an API key, or another one, would help. */
  get wantsKey() {
    return this.status === 401 || (this.status === 403 && this.title.includes("key"));
  }
}

/** One request. Gives the answer's document, or with `text` its text; null where there is none.

Throws a Problem, or an AbortError when `signal` says so. */
export async function call(method, path, { body, signal, text = false } = {}) {
  const headers = { accept: text ? "text/plain" : "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key) headers.authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal, redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ title: "The service does not answer", detail: "Is it still running? Try again." });
  }
  if (response.status === 204) return null;
  if (response.ok && text) return response.text();
  const document = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
  if (response.ok && document !== null) return document;
  if (document && typeof document.title === "string") throw new Problem(document);
  throw new Problem({
    status: response.status,
    title: `Not an answer of the service (status ${response.status})`,
    detail: "Something between this page and the service answered in its place.",
  });
}

/** Items whose title has the query in it: `{items, more}`. */
export const searchItems = (query, signal) =>
  call("GET", `items?query=${encodeURIComponent(query)}&limit=20`, { signal });

/** What is known of an item: `{item_id, metadata}`. */
export const getItem = (itemId, signal) => call("GET", `items/${encodeURIComponent(itemId)}`, { signal });

/** The stored events of a user, oldest first. Needs the scope admin. */
export const getHistory = (userId, signal) =>
  call("GET", `users/${encodeURIComponent(userId)}/history`, { signal });

export const recommend = (body, signal) => call("POST", "recommend", { body, signal });

const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The same request for a shell. The key is not in it: `$KEY` stands for it. */
export function describeAsCurl(path, body, method = "POST") {
  const words = [method === "POST" ? "curl -s" : `curl -s -X ${method}`, quote(new URL(path, document.baseURI).href), "-H 'content-type: application/json'"];
  if (key) words.push('-H "authorization: Bearer $KEY"');
  return `${words.join(" ")} \\\n  -d ${quote(JSON.stringify(body))}`;
}
