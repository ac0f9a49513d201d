// A server that changes when it is told to, written with the TypeScript SDK. The same tools as in changes_mcp_server.py.
//
// `node changes_ts_server.mjs PACKAGES stdio` or `node changes_ts_server.mjs PACKAGES http PORT` (prints its URL), where
// PACKAGES is the node_modules folder that holds the SDK. Over stdio it cannot end a subscription but by leaving, and
// does not know how many there are.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [packages, mode, port] = process.argv.slice(2);
const installed = createRequire(join(packages, 'from-here.js'));
const load = async name => await import(pathToFileURL(installed.resolve(name)));
const { InMemoryServerEventBus, McpServer, createMcpHandler } = await load('@modelcontextprotocol/server');
const { z } = await load('zod');

const text = value => ({ content: [{ type: 'text', text: value }] });
const bus = new InMemoryServerEventBus();
const capabilities = {
    tools: { listChanged: true },
    prompts: { listChanged: true },
    resources: { listChanged: true, subscribe: true }
};
let handler;

function makeServer() {
    const server = new McpServer({ name: 'changes-peer', version: '1.0.0' }, { capabilities });
    const changes = {
        tools: () => (handler ? handler.notify.toolsChanged() : server.sendToolListChanged()),
        prompts: () => (handler ? handler.notify.promptsChanged() : server.sendPromptListChanged()),
        resources: () => (handler ? handler.notify.resourcesChanged() : server.sendResourceListChanged())
    };
    const updated = uri => (handler ? handler.notify.resourceUpdated(uri) : server.server.sendResourceUpdated({ uri }));
    server.registerTool(
        'change',
        { description: 'Tell that a list, or the resource of a URI, has changed.', inputSchema: z.object({ what: z.string() }) },
        async ({ what }) => {
            await (changes[what] ? changes[what]() : updated(what));
            return text(what);
        }
    );
    server.registerTool('end', { description: 'End every subscription.', inputSchema: z.object({}) }, async () => {
        setTimeout(() => (handler ? handler.close() : process.exit(0)), 50);
        return text('ended');
    });
    server.registerTool(
        'opened',
        { description: 'How many subscriptions are open.', inputSchema: z.object({}), outputSchema: z.object({ result: z.number() }) },
        async () => ({ ...text(String(bus.listenerCount)), structuredContent: { result: bus.listenerCount } })
    );
    server.registerResource('greeting', 'peer://greeting', { mimeType: 'text/plain' }, async uri => ({
        contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'hello' }]
    }));
    server.registerPrompt('greet', { description: 'Greet someone.', argsSchema: z.object({ name: z.string() }) }, async ({ name }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Say hello to ${name}.` } }]
    }));
    return server;
}

if (mode === 'stdio') {
    const { serveStdio } = await load('@modelcontextprotocol/server/stdio');
    serveStdio(makeServer);
} else if (mode === 'http') {
    const { toNodeHandler } = await load('@modelcontextprotocol/node');
    handler = createMcpHandler(makeServer, { bus, keepAliveMs: 200 });
    const listener = createServer(toNodeHandler(handler));
    listener.listen(Number(port), '127.0.0.1', () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
} else {
    console.error('usage: changes_ts_server.mjs PACKAGES stdio | http PORT');
    process.exit(2);
}
