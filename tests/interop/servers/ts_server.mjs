// A small server written with the TypeScript SDK: another language's JSON, framing and HTTP stack.
//
// `node ts_server.mjs PACKAGES stdio` or `node ts_server.mjs PACKAGES http PORT` (prints its URL), where PACKAGES is the
// node_modules folder that holds the SDK.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [packages, mode, port] = process.argv.slice(2);
const installed = createRequire(join(packages, 'from-here.js'));
const load = async name => await import(pathToFileURL(installed.resolve(name)));
const { McpServer, ResourceTemplate, acceptedContent, completable, createMcpHandler, inputRequired } =
    await load('@modelcontextprotocol/server');
const { z } = await load('zod');

const text = value => ({ content: [{ type: 'text', text: value }] });
const cancelled = [];

function makeServer() {
    const server = new McpServer({ name: 'ts-peer', version: '1.0.0' }, { instructions: 'A peer for tests.' });
    server.registerTool(
        'add',
        {
            description: 'Add two integers.',
            inputSchema: z.object({ a: z.number().int(), b: z.number().int() }),
            outputSchema: z.object({ total: z.number().int() })
        },
        async ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { total: a + b } })
    );
    server.registerTool(
        'progress',
        { description: 'Report progress once per step.', inputSchema: z.object({ steps: z.number().int() }) },
        async ({ steps }, ctx) => {
            const progressToken = ctx.mcpReq._meta?.progressToken;
            for (let step = 1; progressToken !== undefined && step <= steps; step++) {
                const params = { progressToken, progress: step, total: steps, message: `step ${step}` };
                await ctx.mcpReq.notify({ method: 'notifications/progress', params });
            }
            return text(`${steps} steps`);
        }
    );
    const confirmation = z.object({ confirm: z.boolean() });
    server.registerTool('ask', { description: 'Ask back before answering.', inputSchema: z.object({}) }, async (_, ctx) => {
        const answer = acceptedContent(ctx.mcpReq.inputResponses, 'confirm', confirmation);
        if (answer === undefined) {
            const confirm = inputRequired.elicit({ message: 'Go on?', requestedSchema: confirmation });
            return inputRequired({ inputRequests: { confirm }, requestState: 'asked' });
        }
        return text(answer.confirm ? 'confirmed' : 'refused');
    });
    server.registerTool('fail', { description: 'Fail as a tool.', inputSchema: z.object({}) }, async () => {
        throw new Error('this tool always fails');
    });
    server.registerTool('null', { description: 'Answer with a structured null.', inputSchema: z.object({}) }, async () => ({
        ...text('null'),
        structuredContent: null
    }));
    server.registerTool('big', { description: 'Answer with n letters.', inputSchema: z.object({ n: z.number().int() }) }, async ({ n }) =>
        text('x'.repeat(n))
    );
    const key = z.object({ key: z.string() });
    server.registerTool('wait', { description: 'Report progress once, then wait to be cancelled.', inputSchema: key }, async ({ key }, ctx) => {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        if (progressToken !== undefined) {
            await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: 1 } });
        }
        await new Promise(done => {
            const timer = setTimeout(done, 60_000);
            ctx.mcpReq.signal.addEventListener('abort', () => {
                clearTimeout(timer);
                cancelled.push(key);
                done();
            });
        });
        return text('waited');
    });
    server.registerTool('cancelled', { description: 'The keys of the waits that were cancelled.', inputSchema: z.object({}) }, async () =>
        text(cancelled.join(' '))
    );
    server.registerResource('greeting', 'peer://greeting', { mimeType: 'text/plain' }, async uri => ({
        contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'hello' }]
    }));
    const items = new ResourceTemplate('peer://items/{item}', { list: undefined });
    server.registerResource('item', items, { mimeType: 'text/plain' }, async (uri, { item }) => ({
        contents: [{ uri: uri.href, mimeType: 'text/plain', text: `item ${item}` }]
    }));
    const names = typed => ['Ada', 'Alan', 'Grace'].filter(name => name.startsWith(typed));
    const argsSchema = z.object({ name: completable(z.string(), names) });
    server.registerPrompt('greet', { description: 'Greet someone.', argsSchema }, async ({ name }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Say hello to ${name}.` } }]
    }));
    return server;
}

if (mode === 'stdio') {
    const { serveStdio } = await load('@modelcontextprotocol/server/stdio');
    serveStdio(makeServer);
} else if (mode === 'http') {
    const { toNodeHandler } = await load('@modelcontextprotocol/node');
    const listener = createServer(toNodeHandler(createMcpHandler(makeServer)));
    listener.listen(Number(port), '127.0.0.1', () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
} else {
    console.error('usage: ts_server.mjs PACKAGES stdio | http PORT');
    process.exit(2);
}
