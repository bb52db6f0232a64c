// Sends each case of a table through the MCP SDK for TypeScript and checks the
// result that the SDK reports.
//
//     client.mjs http|stdio DIRECTORY_OF_NODE_MODULES TABLE...
//
// The SDK would refuse to send most cases. So the client asks it for a valid call
// and replaces the message on its way to the transport.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, join } from 'node:path';

const [kind, tools, ...tables] = process.argv.slice(2);
const sdk = createRequire(join(tools, 'package.json'));
const { Client } = sdk('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = sdk('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = sdk('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { ErrorCode, McpError, ResultSchema } = sdk('@modelcontextprotocol/sdk/types.js');

const TIMEOUT_MS = 60_000;

// The value that a table describes. JSON itself cannot express all of them.
function build(value) {
    if (Array.isArray(value)) return value.map(build);
    if (value === null || typeof value !== 'object') return value;
    const entries = Object.entries(value);
    if (entries.length === 1) {
        const [name, given] = entries[0];
        if (name === '$integer') return JSON.rawJSON(given);
        if (name === '$repeat') return given[0].repeat(given[1]);
        if (name === '$copies') return new Array(given[1]).fill(build(given[0]));
        if (name === '$nested') {
            let nested = {};
            for (let depth = 0; depth < given; depth++) nested = { a: nested };
            return nested;
        }
    }
    return Object.fromEntries(entries.map(([name, item]) => [name, build(item)]));
}

function transport(key) {
    if (kind === 'http') {
        return new StreamableHTTPClientTransport(new URL(process.env.GATEWAY_URL), {
            requestInit: { headers: { authorization: `Bearer ${key}` } },
        });
    }
    return new StdioClientTransport({
        command: process.env.GATEWAY,
        args: ['stdio'],
        env: { ...process.env, CONTEXT_BACKEND: process.env.SERVICE_URL, CONTEXT_API_KEY: key },
    });
}

// The result that the SDK reports.
async function answer(client, exchange, testCase) {
    exchange.members = Object.fromEntries(['method', 'params'].filter(name => name in testCase).map(name => [name, build(testCase[name])]));
    try {
        const result = await client.request({ method: 'ping' }, ResultSchema, { timeout: TIMEOUT_MS });
        return result.isError ? { kind: 'tool-error', text: JSON.stringify(result.content) } : { kind: 'result', text: '' };
    } catch (error) {
        if (!(error instanceof McpError)) return { kind: 'error', bare: true, code: error.code, text: String(error) };
        if (error.code === ErrorCode.RequestTimeout) return { kind: 'nothing', text: 'no answer in time' };
        // The SDK's own error when the server has ended.
        if (error.code === ErrorCode.ConnectionClosed) return { kind: 'nothing', text: 'the connection was closed' };
        return { kind: 'error', code: error.code, text: error.message };
    }
}

// Why the result is not the expected one; empty when it is.
function complaint(testCase, got) {
    const allowed = { refused: ['error', 'tool-error'], answer: ['error', 'tool-error', 'result'] }[testCase.expect] ?? [testCase.expect];
    if (!allowed.includes(got.kind)) return `expected ${testCase.expect}, got ${got.kind}`;
    // Over HTTP a call that the key's scopes do not allow gets status 403, without a JSON-RPC message.
    if (got.bare) return testCase.as === 'reader' && got.code === 403 ? '' : 'the reply holds no JSON-RPC message';
    if (got.kind === 'error' && got.code !== (testCase.code ?? got.code)) return `expected code ${testCase.code}, got ${got.code}`;
    if (!got.text.includes(testCase.says ?? '')) return `the answer lacks '${testCase.says}'`;
    return '';
}

async function run(table) {
    const here = ['typescript', 'legacy', kind];
    const cases = JSON.parse(readFileSync(table, 'utf8')).filter(testCase => (testCase.only ?? []).every(only => here.includes(only)));
    const failures = [];
    let sent = 0;
    for (const caller of ['full', 'reader']) {
        const client = new Client({ name: 'sdk-answers', version: '1' });
        const connection = transport(process.env[`KEY_${caller.toUpperCase()}`]);
        await client.connect(connection);
        const exchange = {};
        const send = connection.send.bind(connection);
        connection.send = (message, options) => {
            const { members } = exchange;
            exchange.members = undefined;
            return send(members ? { jsonrpc: '2.0', id: message.id, ...members } : message, options);
        };
        for (const testCase of cases) {
            if ((testCase.as ?? 'full') !== caller) continue;
            sent++;
            const got = await answer(client, exchange, testCase);
            const why = exchange.members ? 'the SDK did not send it' : complaint(testCase, got);
            if (why) failures.push(`${testCase.name}: ${why}: ${got.code ?? ''} ${got.text.slice(0, 300)}`);
        }
        await client.close();
    }
    if (sent === 0 || sent !== cases.length) failures.push(`${sent} of ${cases.length} cases were sent`);
    for (const failure of failures) console.error(`  ${failure}`);
    const name = basename(table, '.json');
    console.error(`TypeScript, ${kind}, ${name}: ${cases.length} cases, ${failures.length} failures`);
    return failures.length === 0;
}

let clean = true;
for (const table of tables) clean = (await run(table)) && clean;
process.exit(clean ? 0 : 1);
