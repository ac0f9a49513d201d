// The client of the TypeScript SDK: `node ts_client.mjs PACKAGES URL` or `node ts_client.mjs PACKAGES COMMAND ARGUMENT...`,
// where PACKAGES is the node_modules folder that holds the SDK. Calls the demo server and prints what it saw.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [packages, target, ...rest] = process.argv.slice(2);
const installed = createRequire(join(packages, 'from-here.js'));
const load = async name => await import(pathToFileURL(installed.resolve(name)));
const { Client, StreamableHTTPClientTransport } = await load('@modelcontextprotocol/client');
const { StdioClientTransport } = await load('@modelcontextprotocol/client/stdio');

const transport = target.startsWith('http')
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args: rest });
const client = new Client(
    { name: 'ts-client', version: '1.0.0' },
    { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: 'auto' } }
);
const asked = [];
client.setRequestHandler('elicitation/create', async request => {
    asked.push(request.params.message);
    return { action: 'accept', content: { confirm: true } };
});
await client.connect(transport);

const call = async (name, args = {}, options = undefined) => await client.callTool({ name, arguments: args }, options);
const text = async (name, args) => (await call(name, args)).content[0].text;
const read = async uri => (await client.readResource({ uri })).contents[0];
const code = async promise => await promise.then(JSON.stringify, error => error.code);
const large = 'é'.repeat(500_000);

const facts = {
    agreement: async () => {
        const { name, version } = client.getServerVersion();
        return [client.getNegotiatedProtocolVersion(), name, version, client.getInstructions()];
    },
    tools: async () => (await client.listTools()).tools.map(tool => tool.name),
    resources: async () => (await client.listResources()).resources.map(resource => resource.uri),
    templates: async () => (await client.listResourceTemplates()).resourceTemplates.map(template => template.uriTemplate),
    prompts: async () => (await client.listPrompts()).prompts.map(prompt => prompt.name),
    structured: async () => {
        const result = await call('add', { a: 1, b: 2 });
        return [result.structuredContent, result.content[0].text];
    },
    mirrored: async () => (await call('weather', { region: '日本' })).structuredContent,
    progress: async () => {
        const seen = [];
        const onprogress = ({ progress, total, message }) => seen.push([progress, total, message]);
        await call('count', { steps: 3 }, { onprogress });
        return seen;
    },
    null: async () => {
        const result = await call('nothing');
        return ['structuredContent' in result, result.structuredContent];
    },
    tool_error: async () => {
        const result = await call('fail', { reason: 'on purpose' });
        return [result.isError, result.content[0].text];
    },
    input_round: async () => [await text('deploy'), asked],
    resource: async () => (await read('demo://readme')).text,
    blob: async () => {
        const content = await read('demo://pixel.png');
        return [content.mimeType, content.blob.slice(0, 8)];
    },
    template: async () => (await read('demo://items/7')).text,
    prompt: async () => {
        const result = await client.getPrompt({ name: 'greet', arguments: { name: 'Ærø', style: 'pirate' } });
        return result.messages[0].content.text;
    },
    completion: async () => {
        const params = { ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'style', value: 'f' } };
        return (await client.complete(params)).completion.values;
    },
    unknown_tool: async () => await code(call('no_such_tool')),
    unknown_resource: async () => await code(read('demo://nowhere')),
    unknown_prompt: async () => await code(client.getPrompt({ name: 'no_such_prompt' })),
    timeout: async () => [await code(call('sleep', { seconds: 20 }, { timeout: 300 })), await text('echo', { message: 'next' })],
    large: async () => (await text('echo', { message: large })) === large,
    concurrent: async () => await Promise.all([...Array(20).keys()].map(number => text('echo', { message: String(number) })))
};

for (const [name, find] of Object.entries(facts)) {
    const line = await find().then(value => ({ name, value }), error => ({ name, failure: error.stack ?? String(error) }));
    console.log(JSON.stringify(line));
}
await client.close();
