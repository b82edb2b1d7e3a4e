// What every client asks a model, and how it tells what came back; the same as `../models/scene.py`.
//
// Every client is started as `CLIENT.mjs BASE_URL API_KEY MODEL`, where the base URL has no `/v1`,
// and prints one JSON object: for every API it speaks, what it saw in each of the scenes.

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
  if (name !== "add") throw new Error(`no tool ${name}`);
  return String(a + b);
}

// What the client throws for each status that it gets.
export async function refusals(ask) {
  const seen = {};
  for (const status of statuses) {
    try {
      await ask(`fail ${status}`);
    } catch (error) {
      seen[status] = {
        class: error.constructor.name,
        status: error.status ?? error.statusCode,
        message: error.message,
      };
    }
  }
  return seen;
}

export function report(seen) {
  console.log(JSON.stringify(seen));
}
