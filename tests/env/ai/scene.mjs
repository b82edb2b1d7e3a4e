// The scenes that every client runs, and how it reports the results; the same as `../models/scene.py`.
//
// Every client is started as `CLIENT.mjs BASE_URL API_KEY MODEL`, where the base URL has no `/v1`,
// and prints one JSON object with the results of each scene for every supported API.

export const [baseURL, apiKey, model] = process.argv.slice(2);

export const greet = "Say hello.";
export const question = "What is 1 + 2?";
const statuses = [401, 404, 429];

export const addSchema = {
  type: "object",
  properties: { a: { type: "integer" }, b: { type: "integer" } },
  required: ["a", "b"],
  additionalProperties: false,
};

export function add(name, { a, b }) {
  if (name !== "add") throw new Error(`unknown tool ${name}`);
  return String(a + b);
}

// Returns the error that the client throws for each status.
export async function refusals(send) {
  const results = {};
  for (const status of statuses) {
    try {
      await send(`fail ${status}`);
    } catch (error) {
      results[status] = {
        class: error.constructor.name,
        status: error.status ?? error.statusCode,
        message: error.message,
      };
    }
  }
  return results;
}

export function report(results) {
  console.log(JSON.stringify(results));
}
