// Gets an access token with the official @azure/identity and a ServiceAccount's token, and prints as JSON when it ends or why there is none.
//
//	node azure-token.mjs <scope>
//
// The credential reads the variables that the workload identity webhook sets: AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_FEDERATED_TOKEN_FILE and
// AZURE_AUTHORITY_HOST. The network is HTTPS_PROXY's and NODE_EXTRA_CA_CERTS'.
import { WorkloadIdentityCredential } from "@azure/identity";

function print(result) {
  process.stdout.write(JSON.stringify(result) + "\n");
}

try {
  const credential = new WorkloadIdentityCredential({ retryOptions: { maxRetries: 0 } });
  const token = await credential.getToken(process.argv[2]);
  print({ ok: true, expiresOn: new Date(token.expiresOnTimestamp).toISOString() });
} catch (error) {
  // "AADSTS700213: No matching …" and the like stand in the middle of the SDK's own words.
  const code = /AADSTS\d+/.exec(error.message)?.[0] ?? error.name;
  print({ ok: false, code, message: error.message });
}
