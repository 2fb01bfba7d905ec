// A real peer: a Streamable HTTP server built with the TypeScript SDK v2. The
// legacy era has sessions, one transport each; the modern one (-modern) has none.
// It runs in the folder where the npm packages are installed.
//
//   node server.mjs [-modern] [-tool NAME] PORT

import { randomUUID } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setTimeout as after } from 'node:timers/promises';

const require = createRequire(join(process.cwd(), 'here.js'));
const { McpServer, createMcpHandler } = require('@modelcontextprotocol/server');
const { NodeStreamableHTTPServerTransport, toNodeHandler } = require('@modelcontextprotocol/node');
const { z } = require('zod');

const args = process.argv.slice(2);
const modern = args.includes('-modern');
const extra = args.includes('-tool') ? args[args.indexOf('-tool') + 1] : undefined;
const port = Number(args.at(-1));

const text = t => ({ content: [{ type: 'text', text: t }] });
const countInput = z.object({ file: z.string(), before: z.number().default(0), after: z.number().default(0) });

// count records its execution before it answers.
async function count(input) {
    await after(input.before);
    appendFileSync(input.file, `${process.pid}\n`);
    await after(input.after);
    return text('counted');
}

let announce; // tells everybody that the list of tools has changed

function newServer() {
    const server = new McpServer({ name: 'tsserver', version: '1' }, { capabilities: { tools: { listChanged: true } } });
    const echo = { description: 'Answers with the text it was given.', inputSchema: z.object({ text: z.string() }), annotations: { readOnlyHint: true } };
    server.registerTool('echo', echo, input => text(input.text));
    server.registerTool('count', { description: 'Appends a line to a file, so that each execution can be counted.', inputSchema: countInput }, count);
    server.registerTool('recount', { description: 'Does the same, and says that once more does no harm.', inputSchema: countInput, annotations: { idempotentHint: true } }, count);
    server.registerTool('announce', { description: 'Tells everybody that the list of tools has changed.' }, () => {
        announce();
        return text('announced');
    });
    if (extra) server.registerTool(extra, echo, input => text(input.text));
    return server;
}

function modernHandler() {
    const handler = createMcpHandler(newServer, { legacy: 'reject' });
    announce = () => handler.notify.toolsChanged();
    return toNodeHandler(handler);
}

// legacyHandler routes by session, as the SDK's guide on sessions does.
function legacyHandler() {
    const sessions = new Map();
    announce = () => sessions.forEach(s => s.server.sendToolListChanged());
    return async (req, res) => {
        const id = req.headers['mcp-session-id'];
        if (sessions.has(id)) {
            await sessions.get(id).transport.handleRequest(req, res);
            return;
        }
        if (id) {
            res.writeHead(404, { 'content-type': 'application/json' });
            res.end(JSON.stringify({ jsonrpc: '2.0', error: { code: -32001, message: 'Session not found' }, id: null }));
            return;
        }
        const server = newServer();
        const transport = new NodeStreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: id => sessions.set(id, { server, transport }),
        });
        transport.onclose = () => sessions.delete(transport.sessionId);
        await server.connect(transport);
        await transport.handleRequest(req, res);
    };
}

const handler = modern ? modernHandler() : legacyHandler();
createServer((req, res) => {
    if (new URL(req.url, 'http://localhost').pathname === '/mcp') return handler(req, res);
    res.writeHead(404).end();
}).listen(port, '127.0.0.1', () => console.error(`tsserver: listening on port ${port}`));
