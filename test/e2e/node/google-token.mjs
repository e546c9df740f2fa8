// Gets an access token with the official google-auth-library and a ServiceAccount's token, and prints as JSON when it ends or why there is none.
//
//	node google-token.mjs <scope>
//
// GOOGLE_APPLICATION_CREDENTIALS names the credential configuration, of type external_account. GOOGLE_CLOUD_PROJECT names the project, which the library
// would ask Cloud Resource Manager for otherwise. The network is HTTPS_PROXY's and NODE_EXTRA_CA_CERTS'.
import { GoogleAuth } from "google-auth-library";

function print(result) {
  process.stdout.write(JSON.stringify(result) + "\n");
}

try {
  const client = await new GoogleAuth({ scopes: process.argv[2] }).getClient();
  const { token } = await client.getAccessToken();
  if (!token) {
    throw new Error("there is no token in the answer");
  }
  print({ ok: true, expiresOn: new Date(client.credentials.expiry_date).toISOString() });
} catch (error) {
  // STS answers with an OAuth error (RFC 6749 §5.2), IAM Credentials with one of Google's APIs (google.rpc.Status).
  const body = error.response?.data;
  const code = body?.error?.status ?? body?.error ?? error.code ?? error.name;
  print({ ok: false, code: String(code), message: error.message });
}
