// Reads {documents: {direction: schema}, cases: [[direction, text, definition or null]]} on stdin, and writes a list of verdicts.
const Ajv = require("ajv/dist/2020");
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
const ajv = new Ajv({ strict: true, allowUnionTypes: true });
for (const document of Object.values(given.documents)) ajv.addSchema(document);

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function verdict([direction, text, definition]) {
  const { $id, $defs } = given.documents[direction];
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return false;
  }
  if (!ajv.getSchema($id)(value)) return false;
  if (definition === null || !(definition in $defs) || value.type !== "control_response") return true;
  // what an answer carries depends on its question
  const { subtype, response } = value.response;
  return subtype !== "success" || !isObject(response) || ajv.getSchema(`${$id}#/$defs/${definition}`)(response);
}

process.stdout.write(JSON.stringify(given.cases.map(verdict)));
