package azure

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// controllerOperation is the call's name, for use in errors.
const controllerOperation = "the controller's own token"

// NewControllerToken implements [auth.ControllerProvider] with the identity that the environment
// configures: a client secret or certificate (AZURE_CLIENT_SECRET, AZURE_CLIENT_CERTIFICATE_PATH),
// otherwise a workload identity (AZURE_FEDERATED_TOKEN_FILE). Each call reads the environment anew.
//
// Every Pod of a host shares the host's managed identity. NewControllerToken uses it only if
// AZURE_TOKEN_CREDENTIALS is ManagedIdentityCredential. Without this rule, a controller whose
// workload identity is not fully configured would silently get the host's identity. If the host has
// several managed identities, AZURE_CLIENT_ID selects one.
//
// NewControllerToken starts no program for a credential: not the Azure CLI, the Azure Developer CLI
// or PowerShell. It refuses a proxy that a tenant chose.
func (p *Provider) NewControllerToken(ctx context.Context, request *auth.Request) (auth.Token, error) {
	if request.ProxyURL != nil {
		return nil, refusal.Detour("proxy")
	}
	scope, err := p.scope(request.Key)
	if err != nil {
		return nil, err
	}
	token, code, err := p.controllerToken(ctx, scope)
	if fallback, ok := p.registryFallback(request.Key, scope, code); ok {
		token, _, err = p.controllerToken(ctx, fallback)
	}
	return token, err
}

// controllerToken gets a token for one scope. If Entra refuses, the returned code is Entra's error
// code; otherwise it is zero.
func (p *Provider) controllerToken(ctx context.Context, scope string) (_ auth.Token, code aadsts, _ error) {
	name, err := credentialName(os.Getenv) //nolint:forbidigo // the controller's own identity is what its environment says
	if err != nil {
		return nil, 0, err
	}
	wire := remote.NewRecorder(ctx, p.calls.Environment())
	source, err := p.source(name, remote.NewClient(wire, p.calls.Timeout()))
	if err != nil {
		// Do not wrap the SDK's error, because it contains paths and contents of files.
		return nil, 0, &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid, Fix: source.mend,
			Err: errors.New(source.name + " of the controller's environment cannot be used"),
		}
	}
	got, err := source.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil {
		f, code := source.failure(ctx, wire.Last())
		stage := auth.StageExchange
		if f.Code == auth.CodeIdentityMissing || f.Code == auth.CodeIdentityInvalid {
			stage = auth.StageIdentity
		}
		return nil, code, f.Error(stage, controllerOperation)
	}
	if got.Token == "" || got.ExpiresOn.IsZero() {
		return nil, 0, remote.Invalid(source.where, "a token", errors.New("no token with an end in it")).
			Error(auth.StageExchange, controllerOperation)
	}
	return &Token{Secret: auth.NewSecret(got.Token), ExpiresAt: got.ExpiresOn.UTC()}, 0, nil
}

// failure returns the reason why the source gave no token. It reads the last request and its
// answer, not the SDK's error, which repeats whole answers. If Entra refuses, the returned code is
// Entra's error code; otherwise it is zero.
func (s source) failure(ctx context.Context, last remote.Exchange) (f remote.Failure, code aadsts) {
	got := last.Answer
	// The SDK gets the authority's discovery document before it asks for a token. If the last
	// answer is such a document, the SDK did not ask for a token.
	discovered := last.Method == http.MethodGet && !s.managed && got.Status == http.StatusOK && json.Valid(got.Body)
	switch {
	case last.Err != nil || last.Method == "" && ctx.Err() != nil:
		f := remote.Unanswered(ctx, last.Err, s.where)
		if s.managed {
			f.Fix = s.mend
		}
		return f, 0
	case last.Method == "", discovered:
		return remote.Failure{Where: s.where, Code: auth.CodeIdentityInvalid, What: "no token could be asked for", Fix: s.mend}, 0
	case got.Status == http.StatusOK:
		return remote.Invalid(s.where, "a token", errors.New("it is not the JSON of a token answer")), 0
	case s.managed:
		return s.managedFailure(got), 0
	}
	f, code = entraFailure(got, s.where)
	if f.Code == auth.CodeTrustRefused || code == assertionTime {
		f.Fix = s.mend
	}
	return f, code
}

// managedFailure returns the failure of a call to the host's identity endpoint. Source: Microsoft
// Entra, "How to use managed identities on an Azure VM to acquire an access token", "Error
// handling".
func (s source) managedFailure(a remote.Answer) remote.Failure {
	f := a.Refusal(s.where, "the host")
	switch a.Status {
	case http.StatusBadRequest:
		f.Code, f.What, f.Fix = auth.CodeIdentityMissing, "the host has no such identity", s.mend
	case http.StatusNotFound, http.StatusGone:
		f.Code, f.What, f.Fix = auth.CodeUnavailable, "the endpoint is being updated", "wait, and "+s.mend+" if the failure persists"
	case http.StatusUnauthorized, http.StatusForbidden:
		f.Code, f.What, f.Fix = auth.CodeRefused, "the host does not give the controller a token", s.mend
	}
	return f
}
