// Gets a session with the official @alicloud/credentials and a token of an OIDC issuer, and prints as JSON that there is one or why there is none.
//
//	node alibaba-token.mjs
//
// The library's default chain reads ALIBABA_CLOUD_ROLE_ARN, ALIBABA_CLOUD_OIDC_PROVIDER_ARN and ALIBABA_CLOUD_OIDC_TOKEN_FILE. It knows no proxy, so
// that its requests are given an agent for HTTPS_PROXY here. Certificates are NODE_EXTRA_CA_CERTS'.
import https from "node:https";
import credentials from "@alicloud/credentials";
import { HttpsProxyAgent } from "https-proxy-agent";

const direct = https.request;
https.request = (options, done) => direct({ ...options, agent: new HttpsProxyAgent(process.env.HTTPS_PROXY) }, done);

function print(result) {
  process.stdout.write(JSON.stringify(result) + "\n");
}

try {
  const session = await new credentials.default().getCredential();
  if (!session.securityToken) {
    throw new Error("there is no security token in the answer");
  }
  print({ ok: true });
} catch (error) {
  // {"Code":"AuthenticationFail.NoPermission", …} stands in the middle of the library's own words.
  const code = /"Code":"([^"]+)"/.exec(error.message)?.[1] ?? error.name;
  print({ ok: false, code, message: error.message });
}
