// Tools that ask their client, written with the TypeScript SDK. The same tools as in rounds_mcp_server.py.
//
// `node rounds_ts_server.mjs PACKAGES stdio` or `node rounds_ts_server.mjs PACKAGES http PORT` (prints its URL), where
// PACKAGES is the node_modules folder that holds the SDK. A client of an older revision is asked by requests.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [packages, mode, port] = process.argv.slice(2);
const installed = createRequire(join(packages, 'from-here.js'));
const load = async name => await import(pathToFileURL(installed.resolve(name)));
const { McpServer, createMcpHandler, inputRequired, inputResponse } = await load('@modelcontextprotocol/server');
const { z } = await load('zod');

const text = value => ({ content: [{ type: 'text', text: value }] });
const form = message => inputRequired.elicit({ message, requestedSchema: z.object({ name: z.string() }) });
const word = () =>
    inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text: 'Say a word.' } }], maxTokens: 5 });

function told(answers, key) {
    const answer = inputResponse(answers, key);
    switch (answer.kind) {
        case 'elicit':
            return answer.action === 'accept' ? (answer.content?.name ?? 'accept') : answer.action;
        case 'sampling':
            return answer.result.content.text;
        case 'roots':
            return answer.roots.map(root => root.uri).join(' ');
        default:
            return 'nothing';
    }
}

function makeServer() {
    const server = new McpServer({ name: 'rounds-peer', version: '1.0.0' });
    const tool = (name, description, run) =>
        server.registerTool(name, { description, inputSchema: z.object({}) }, async (_, ctx) =>
            run(ctx.mcpReq.inputResponses ?? {}, ctx.mcpReq.requestState())
        );
    const single = (name, description, key, request) =>
        tool(name, description, answers =>
            key in answers ? text(told(answers, key)) : inputRequired({ inputRequests: { [key]: request() } })
        );
    single('ask_name', 'Ask for a name in a form.', 'name', () => form('Your name?'));
    single('ask_word', 'Ask a model for a word.', 'word', word);
    single('ask_roots', 'Ask for the folders that are shared.', 'roots', () => inputRequired.listRoots());
    single('ask_page', 'Have a page opened.', 'page', () =>
        inputRequired.elicitUrl({ message: 'Sign in', url: 'https://peer.test/sign-in' })
    );
    tool('wait_twice', 'Have the call made again twice, with nothing but a state.', (_, state) => {
        const turn = Number(state ?? '0');
        return turn < 2 ? inputRequired({ requestState: String(turn + 1) }) : text(`after ${turn}`);
    });
    tool('ask_all', 'Ask for everything at once, without a state.', answers => {
        const keys = Object.keys(answers).sort();
        if (keys.length === 0) {
            const inputRequests = { name: form('Your name?'), word: word(), roots: inputRequired.listRoots() };
            return inputRequired({ inputRequests });
        }
        return text(keys.map(key => `${key} ${told(answers, key)}`).join(', '));
    });
    tool('ask_thrice', 'Ask three times, keeping the answers in the state.', (answers, state) => {
        const keys = Object.keys(answers).sort();
        const known = [...(state ? state.split('|') : []), ...keys.map(key => told(answers, key))];
        if (known.length < 3) {
            const inputRequests = { [`name${known.length}`]: form(`Name ${known.length}?`) };
            return inputRequired({ inputRequests, ...(known.length > 0 && { requestState: known.join('|') }) });
        }
        return text(`${known.join(' ')}; last with ${keys.join(' ')}`);
    });
    tool('ask_forever', 'Ask again and again.', (_, state) =>
        inputRequired({ inputRequests: { name: form('Your name?') }, requestState: `${state ?? ''}+` })
    );
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
    console.error('usage: rounds_ts_server.mjs PACKAGES stdio | http PORT');
    process.exit(2);
}
