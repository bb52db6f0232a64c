// Shows for each client the command or the file to copy, with the address of this service.

import { useState } from "preact/hooks";

import { address, api, type ApiError, session } from "../api";
import { curlTo, quoted } from "../commands";
import { useApp } from "../context";
import { asApiError } from "../hooks";
import { Button, Choices, Code, Field, Head, inputValue, Trouble } from "../parts/basics";

interface Client {
  id: string;
  name: string;
  /** The file or place into which the text is copied. */
  place: (given: Given) => string;
  text: (given: Given) => string;
}

interface Given {
  url: string;
  /** The variables with which a gateway finds the service. */
  service: Record<string, string>;
  /** The key or its placeholder; undefined when the service needs none. */
  key: string | undefined;
  program: string;
}

const KEY = "sk_prod_…";

/** The gateway as a process of the client. */
function process({ service, key, program }: Given): { command: string; args: string[]; env: Record<string, string> } {
  return { command: program, args: ["stdio"], env: { ...service, ...(key === undefined ? {} : { CONTEXT_API_KEY: key }) } };
}

const file = (servers: string, extra: Record<string, unknown> = {}) => (given: Given) =>
  JSON.stringify({ [servers]: { context: { ...extra, ...process(given) } } }, null, 2);

const CLIENTS: Client[] = [
  {
    id: "claude",
    name: "Claude Code",
    place: () => "Run this once, in any directory",
    text: (given) => {
      const env = Object.entries(process(given).env).map(([name, value]) => ` \\\n  --env ${quoted(`${name}=${value}`)}`);
      return `claude mcp add --scope user context${env.join("")} \\\n  -- ${quoted(given.program)} stdio`;
    },
  },
  { id: "claude-desktop", name: "Claude Desktop", place: () => "claude_desktop_config.json (Settings, Developer, Edit Config)", text: file("mcpServers") },
  { id: "cursor", name: "Cursor", place: () => "~/.cursor/mcp.json", text: file("mcpServers") },
  { id: "vscode", name: "VS Code", place: () => "mcp.json (command “MCP: Open User Configuration”)", text: file("servers", { type: "stdio" }) },
  {
    id: "codex",
    name: "Codex",
    place: () => "~/.codex/config.toml",
    text: (given) => {
      const { command, args, env } = process(given);
      const toml = Object.entries(env).map(([name, value]) => `${name} = ${JSON.stringify(value)}`);
      return `[mcp_servers.context]\ncommand = ${JSON.stringify(command)}\nargs = ${JSON.stringify(args)}\n\n[mcp_servers.context.env]\n${toml.join("\n")}`;
    },
  },
  { id: "gemini", name: "Gemini CLI", place: () => "~/.gemini/settings.json", text: file("mcpServers") },
  {
    id: "http",
    name: "MCP over HTTP",
    place: () => "Run the gateway; clients then use http://127.0.0.1:7421/mcp",
    text: ({ service, key, program }) =>
      [...Object.entries({ ...service, ...(key ? { AUTH: "keys" } : {}) }).map(([name, value]) => `${name}=${quoted(value)}`), quoted(program), "http"].join(" "),
  },
  {
    id: "curl",
    name: "curl",
    place: () => "Stores one entry",
    text: ({ url, key }) =>
      `${session() ? curlTo("v1/contexts") : `curl -s ${quoted(`${url}/v1/contexts`)}`}${key ? ' \\\n  -H "Authorization: Bearer $CONTEXT_API_KEY"' : ""} \\\n  -H 'Content-Type: application/json' \\\n  -d '{"thread_id": "hello", "source": "user", "text": "The first entry."}'`,
  },
  {
    id: "python",
    name: "Python",
    place: () => "REST, with the standard library",
    text: ({ url, key }) =>
      `import json, ${key ? "os, " : ""}urllib.request\n\nrequest = urllib.request.Request(\n    ${JSON.stringify(`${url}/v1/contexts/search/fts`)},\n    data=json.dumps({"query": "hello"}).encode(),\n    headers={"Content-Type": "application/json"${key ? ', "Authorization": "Bearer " + os.environ["CONTEXT_API_KEY"]' : ""}},\n)\nprint(json.load(urllib.request.urlopen(request))["results"])`,
  },
];

export function Connect() {
  const { rights } = useApp();
  const [chosen, setChosen] = useState("claude");
  const [url, setUrl] = useState(() => address(".").href.replace(/\/$/, ""));
  const [program, setProgram] = useState("context-gateway");
  // The new keys, by client.
  const [made, setMade] = useState<Record<string, string>>({});
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const opened = session();
  // Python's standard library has no HTTP over a socket.
  const clients = opened ? CLIENTS.filter(({ id }) => id !== "python") : CLIENTS;
  const client = clients.find(({ id }) => id === chosen) ?? clients[0];
  if (client === undefined) return null;
  const isGateway = !["curl", "python"].includes(client.id);
  // The texts for curl and Python name the variable that holds the key. The gateway for HTTP gets the keys of its clients.
  const hasKeyInIt = isGateway && client.id !== "http";
  const base = url.trim().replace(/\/$/, "");
  const given = { url: base, service: opened?.gateway_environment ?? { CONTEXT_BACKEND: base }, key: rights.keyed ? (made[client.id] ?? KEY) : undefined, program: program.trim() || "context-gateway" };
  // No key can create a key that may do more than itself.
  const scopes = (["read", "write", "delete"] as const).filter((scope) => rights.contexts[scope]);
  const makeKey = async () => {
    setError(undefined);
    setBusy(true);
    try {
      const { key } = await api.createKey({ name: client.name, scopes });
      setMade((old) => ({ ...old, [client.id]: key }));
    } catch (failure) {
      setError(asApiError(failure));
    }
    setBusy(false);
  };
  return (
    <section class="view">
      <Head title="Connect" />
      <p class="lead">Give a client this service as its memory. Choose the client, and copy.</p>
      <Choices name="client" label="Client" value={chosen} onChange={setChosen} choices={clients.map(({ id, name }) => ({ value: id, label: name }))} />
      <div class="grid connect">
        {!opened && (
          <Field label="Address of this service" hint="as the client reaches it">
            <input type="url" value={url} spellcheck={false} onInput={(event) => setUrl(inputValue(event))} />
          </Field>
        )}
        {isGateway && (
          <Field label="Gateway program" hint="with its path, unless it is on the PATH">
            <input value={program} spellcheck={false} onInput={(event) => setProgram(inputValue(event))} />
          </Field>
        )}
      </div>
      <Code name={client.place(given)} text={client.text(given)}>
        {hasKeyInIt && rights.manage && scopes.length > 0 && made[client.id] === undefined && (
          <Button small icon="keys" disabled={busy} onClick={() => void makeKey()}>
            Put a new key in it
          </Button>
        )}
      </Code>
      {error && <Trouble error={error} />}
      <ul class="hints">
        {rights.keyed && <li>{hasKeyInIt ? (made[client.id] ? `This is a new key, “${client.name}”. It is shown only now.` : `Put a key in place of ${KEY}.`) : client.id === "http" ? "Each client sends its own key." : "Set CONTEXT_API_KEY to a key."} Each client should have a key of its own.</li>}
        {isGateway && new URL(address("").href).pathname !== "/" && <li>This page is served below a path. The gateway speaks gRPC, which needs the service itself: name its host and port.</li>}
        {isGateway && client.id !== "http" && !rights.keyed && Object.keys(opened?.gateway_environment ?? {}).length === 0 && (
          <li>
            Or let the gateway do it: <code>{`${quoted(given.program)} install ${client.id}${opened ? "" : ` --backend ${quoted(given.url)}`}`}</code>
          </li>
        )}
        {isGateway && <li>Then start the client again. What it stores appears under Activity at once.</li>}
        {opened && (
          <li>
            This service has no port. For gRPC and REST from programs, or from other machines, start it yourself: <code>context-service</code>
          </li>
        )}
      </ul>
    </section>
  );
}
