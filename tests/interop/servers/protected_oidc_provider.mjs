// An authorization server: oidc-provider with its own pages, for the MCP servers in this folder.
//
// `node protected_oidc_provider.mjs PACKAGES KEY` prints its issuer, which has no path. PACKAGES is the node_modules
// folder that holds it, KEY a file for the private key of the client `cron`, which it writes. It signs its access
// tokens (RFC 9068), for 2 seconds, registers any client that obeys the rules of its `application_type` and names no
// scope of another server, and gives a refresh token to who asks for `offline_access` as OpenID Connect has it. Any
// name and password sign in.
import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

console.info = console.warn = () => {}; // it advises against everything that makes it quick to set up
const [packages, file] = process.argv.slice(2);
const installed = createRequire(join(packages, 'from-here.js'));
const { Provider } = await import(pathToFileURL(installed.resolve('oidc-provider')));

const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
writeFileSync(file, privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 });
const cron = {
    client_id: 'cron',
    grant_types: ['client_credentials'],
    redirect_uris: [],
    response_types: [],
    token_endpoint_auth_method: 'private_key_jwt',
    jwks: { keys: [{ ...createPublicKey(privateKey).export({ format: 'jwk' }), alg: 'ES256', use: 'sig' }] }
};
const server = createServer();
server.listen(0, '127.0.0.1', () => {
    const issuer = `http://127.0.0.1:${server.address().port}`;
    const provider = new Provider(issuer, {
        clients: [cron],
        features: {
            clientCredentials: { enabled: true },
            registration: { enabled: true },
            resourceIndicators: {
                enabled: true,
                getResourceServerInfo: (_, resource) => ({
                    scope: 'tools',
                    audience: resource,
                    accessTokenFormat: 'jwt',
                    accessTokenTTL: 2,
                    jwt: { sign: { alg: 'RS256' } }
                })
            }
        }
    });
    server.on('request', provider.callback());
    process.stdout.write(`${issuer}\n`);
});
