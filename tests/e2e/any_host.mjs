// A program with the official TypeScript SDK: one streamed conversation with a hook, a permission and a tool of this process.
// The arguments: the folder of the SDK's package, the claude to start, the working directory. It prints what it has noted, as JSON lines.
import { pathToFileURL } from "node:url";
import { createRequire } from "node:module";

const [folder, claude, cwd] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { query, tool, createSdkMcpServer } = await load("@anthropic-ai/claude-agent-sdk");
const { z } = await load("zod");

const note = (...words) => console.log(JSON.stringify(words));
const add = tool("add", "Adds two numbers", { a: z.number(), b: z.number() }, async ({ a, b }) => {
  note("add called", a, b);
  return { content: [{ type: "text", text: `sum=${a + b}` }] };
});

let heard = () => {};
async function* prompts() {
  for (const content of ["Make it", "Add them"]) {
    const answered = new Promise((resolve) => { heard = resolve; });
    yield { type: "user", message: { role: "user", content }, parent_tool_use_id: null, session_id: "" };
    await answered;
  }
}

const conversation = query({
  prompt: prompts(),
  options: {
    pathToClaudeCodeExecutable: claude,
    cwd,
    settingSources: [],
    mcpServers: { sums: createSdkMcpServer({ name: "sums", version: "1", tools: [add] }) },
    allowedTools: ["mcp__sums__add"],
    canUseTool: async (name, input) => { note("asked about", name); return { behavior: "allow", updatedInput: input }; },
    hooks: { PreToolUse: [{ matcher: "Bash", hooks: [async (given) => { note("hook", given.hook_event_name, given.tool_name); return {}; }] }] },
  },
});
for await (const message of conversation) {
  if (message.type === "result") {
    note("result", message.subtype, message.result);
    heard();
  } else if (message.type === "assistant" || message.type === "user") {
    note(message.type, message.message.content);
  } else {
    note(message.type, message.subtype ?? "");
  }
}
