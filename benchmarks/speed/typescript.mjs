// Reads one turn with the public query() of the TypeScript SDK. argv: the SDK's module, the program that plays the CLI.
// Prints the messages after the first, and the seconds of processor time and of the clock that they took.
import { pathToFileURL } from "node:url";

const [sdk, peer] = process.argv.slice(2);
const { query } = await import(pathToFileURL(sdk).href);
const options = { pathToClaudeCodeExecutable: peer, includePartialMessages: true };
let messages = -1;
let started, last;
for await (const message of query({ prompt: "go", options })) {
  if (++messages === 0) started = { cpu: process.cpuUsage(), wall: performance.now() };
  if (message.type === "result") {
    const { user, system } = process.cpuUsage(started.cpu);
    last = { messages, cpu: (user + system) / 1e6, wall: (performance.now() - started.wall) / 1e3 };
  }
}
console.log(JSON.stringify(last));
