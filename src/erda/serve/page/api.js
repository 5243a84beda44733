// The calls of the server. Every failure has one body: error, message, where.

export class Failure extends Error {
  constructor(status, body) {
    super(body.message || `The server answered with status ${status}.`);
    this.status = status;
    this.error = body.error || "";
  }
}

async function call(method, path, body, read = (answer) => answer.json().catch(() => ({}))) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Failure(0, { message: "The server does not answer. Is it still running?" });
  }
  if (!answer.ok) throw new Failure(answer.status, await answer.json().catch(() => ({})));
  return read(answer);
}

const named = (path, relation) => `${path}?relation=${encodeURIComponent(relation)}`;

export const api = {
  relations: () => call("GET", "/v1/relations"),
  examples: (relation) => call("GET", relation === undefined ? "/v1/examples" : named("/v1/examples", relation)), // without: of all
  entities: (text) => call("POST", "/v1/entities", { text }),
  extract: (text, entities, keep, top) =>
    call("POST", "/v1/extract", { text, keep, top, ...(entities && { entities }) }),
  explain: (example) => call("POST", "/v1/explain", example),
  teach: (body) => call("POST", "/v1/teach", body),
  judge: (example, relation, holds) => call("POST", "/v1/judge", { ...example, relation, holds }),
  rename: (relation, to) => call("POST", "/v1/relations/rename", { relation, to }),
  merge: (relation, into) => call("POST", "/v1/relations/merge", { relation, into }),
  describe: (relation, description) => call("POST", "/v1/relations/describe", { relation, description }),
  declare: (body) => call("POST", "/v1/relations/declare", body),
  tune: (examples, precision) => call("POST", "/v1/tune", { examples, precision }),
  forget: (relation) => call("DELETE", named("/v1/relations", relation)),
  takeBack: (number) => call("DELETE", `/v1/examples/${number}`),
  evaluate: (examples) => call("POST", "/v1/evaluate", { examples }),
  history: () => call("GET", "/v1/history"),
  undo: (to) => call("POST", "/v1/undo", to === undefined ? {} : { to }),
  job: (id) => call("GET", `/v1/jobs/${id}`),
  cancel: (id) => call("DELETE", `/v1/jobs/${id}`),
  review: {
    state: () => call("GET", "/v1/review"),
    texts: (texts, job = false) => call("POST", "/v1/review/texts", { texts, job }),
    next: (body) => call("POST", "/v1/review/next", body),
    judge: (body) => call("POST", "/v1/review/judge", body),
    accept: (body) => call("POST", "/v1/review/accept", body),
    undo: (body) => call("POST", "/v1/review/undo", body),
  },
  graph: (format, question) => call("POST", `/v1/graph?format=${format}`, question, (answer) => answer.blob()),
  map: () => call("GET", "/v1/map"),
};
