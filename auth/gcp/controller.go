package gcp

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"golang.org/x/oauth2/google/externalaccount"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/refusal"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
	"github.com/lanyard-dev/lanyard/auth/privatekey"
)

const (
	// credentialsVariable is the environment variable that names the controller's credentials file.
	// Source: Google Cloud, "How Application Default Credentials works".
	credentialsVariable = "GOOGLE_APPLICATION_CREDENTIALS" //nolint:gosec // a name, no credential
	// maxCredentials bounds a credentials file, in bytes.
	maxCredentials = 1 << 20
	// maxNested bounds the depth of nested source_credentials in a credentials file.
	maxNested = 8
	// giveIdentity is the fix for a controller without an identity.
	giveIdentity = "give the controller's ServiceAccount an identity with Workload Identity Federation for " +
		"GKE, or set " + credentialsVariable +
		", or name a ServiceAccount in the object"
	// controllerOperation names the operation of NewControllerToken in errors.
	controllerOperation = "the controller's own token"
)

// NewControllerToken implements [auth.ControllerProvider] with Application Default Credentials.
// Each call reads the environment anew. It uses the first of these sources that applies:
//
//   - the file that GOOGLE_APPLICATION_CREDENTIALS names, if the variable is set
//   - the file that gcloud writes (~/.config/gcloud/application_default_credentials.json), if it
//     exists
//   - the metadata server
//
// In a node pool with Workload Identity Federation for GKE, the metadata server returns the Pod's
// token. Elsewhere it returns the node's token in the same form. NewControllerToken cannot tell
// which of the two it got.
//
// NewControllerToken refuses an executable credential source, because no program is started for a
// credential. It also refuses a tenant's proxy.
func (p *Provider) NewControllerToken(ctx context.Context, request *auth.Request) (auth.Token, error) {
	if request.ProxyURL != nil {
		return nil, refusal.Detour("proxy")
	}
	wanted, err := p.scopes.Parse(request.Key.Scopes)
	if err != nil {
		return nil, err
	}
	path, data, err := readCredentials()
	if err != nil {
		return nil, fileError(path, errors.New("it cannot be read"))
	}
	if path == "" {
		return asToken(p.metadata.token(ctx, *wanted))
	}
	return asToken(p.tokenOfFile(ctx, path, data, *wanted))
}

// readCredentials finds and reads the credentials file. The path is empty if there is no file.
func readCredentials() (path string, data []byte, err error) {
	path = os.Getenv(credentialsVariable) //nolint:forbidigo // the environment configures the controller's own identity
	if path != "" {
		data, err = readFile(path)
		return path, data, err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", nil, nil //nolint:nilerr // without a home there is no file in it
	}
	path = filepath.Join(home, ".config", "gcloud", "application_default_credentials.json")
	data, err = readFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, nil
	}
	return path, data, err
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // the administrator's own
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxCredentials+1))
	if err == nil && len(data) > maxCredentials {
		err = errors.New("too long")
	}
	return data, err
}

// fileError is the error for a credentials file that cannot be used.
func fileError(path string, err error) *auth.Error {
	return &auth.Error{
		Stage: auth.StageIdentity, Code: auth.CodeIdentityInvalid,
		Fix: "correct the controller's credentials file, or remove it and use Workload Identity Federation for GKE",
		Err: fmt.Errorf("the credentials file %s: %w", remote.Printable(path, remote.MaxName), err),
	}
}

// credentialsFile has the fields of a credentials file that NewControllerToken checks. The names
// and types of the fields equal those in package google, so that both packages read a file in the
// same way.
type credentialsFile struct {
	Type              string                           `json:"type"`
	PrivateKey        string                           `json:"private_key"`
	UniverseDomain    string                           `json:"universe_domain"`
	CredentialSource  externalaccount.CredentialSource `json:"credential_source"`
	SourceCredentials *credentialsFile                 `json:"source_credentials"`
	// Web and Installed mark a file with which a person signs in. NewControllerToken refuses such
	// a file whatever its Type says, because package google would accept it as credentials.
	Web       json.RawMessage `json:"web"`
	Installed json.RawMessage `json:"installed"`
}

// types returns the accepted types of credentials. A program can use them without asking anyone to
// sign in. Source: package google, CredentialsType.
func types() []google.CredentialsType {
	return []google.CredentialsType{google.ServiceAccount, google.AuthorizedUser, google.ExternalAccount, google.ImpersonatedServiceAccount}
}

// check refuses a file of any of these kinds:
//
//   - It is for programs that ask a person to sign in.
//   - It would start a program.
//   - It belongs to another universe.
//   - It has an unknown type, nests too many credentials, or has a bad private key.
func (f *credentialsFile) check(universe string) error {
	domain := cmp.Or(f.UniverseDomain, "googleapis.com")
	switch {
	case f.Web != nil || f.Installed != nil:
		return errors.New("it is for signing in people")
	case !slices.Contains(types(), google.CredentialsType(f.Type)):
		return errors.New("its type " + remote.Printable(f.Type, remote.MaxName) + " is not supported")
	case domain != universe:
		return errors.New("it is in universe " + remote.Printable(domain, remote.MaxName) + ", but the controller is in universe " + universe)
	}
	depth := 0
	for ; f != nil; f = f.SourceCredentials {
		if depth++; depth > maxNested {
			return errors.New("it nests too many credentials")
		}
		if f.CredentialSource.Executable != nil {
			return errExecutable
		}
		if err := f.checkKey(); err != nil {
			return fmt.Errorf("its private_key: %w", err)
		}
	}
	return nil
}

// checkKey checks the private key of a service account before package google parses the key.
func (f *credentialsFile) checkKey() error {
	if f.PrivateKey == "" {
		return nil
	}
	block, _ := pem.Decode([]byte(f.PrivateKey))
	if block == nil { // refused, because package google would parse the text as DER, unchecked
		return errors.New("there is no private key in PEM")
	}
	_, err := privatekey.Parse(block.Bytes)
	return err
}

// errExecutable is the refusal of a file with an executable source.
var errExecutable = errors.New("it has an executable credential source, and no program is started for a credential")

// tokenOfFile gets a token from the service that the credentials file names.
func (p *Provider) tokenOfFile(ctx context.Context, path string, data []byte, wanted []string) (*Token, error) {
	var file credentialsFile
	if json.Unmarshal(data, &file) != nil {
		return nil, fileError(path, errNotJSON)
	}
	if err := file.check(p.universe.Domain); err != nil {
		refused := fileError(path, err)
		if errors.Is(err, errExecutable) {
			refused.Code = auth.CodeOptionUnsupported
			refused.Fix = "name a file or a URL as credential_source, or use Workload Identity Federation for GKE"
		}
		return nil, refused
	}
	wire := remote.NewRecorder(ctx, p.calls.Environment())
	ctx = context.WithValue(ctx, oauth2.HTTPClient, remote.NewClient(wire, p.calls.Timeout()))
	credentials, err := google.CredentialsFromJSONWithTypeAndParams(ctx, data, google.CredentialsType(file.Type),
		google.CredentialsParams{Scopes: wanted})
	if err != nil {
		// Do not wrap the SDK's error, because it may quote the file.
		return nil, fileError(path, errors.New("it cannot be used"))
	}
	got, err := credentials.TokenSource.Token()
	if err != nil {
		return nil, fileFailure(ctx, path, wire.Last())
	}
	if !isBearer(got.AccessToken) || got.Expiry.IsZero() {
		return nil, remote.Invalid(hostOf(wire.Last()), "a token", errors.New("no access token with an end in it")).
			Error(auth.StageExchange, controllerOperation)
	}
	return &Token{Secret: auth.NewSecret(got.AccessToken), ExpiresAt: got.Expiry.UTC()}, nil
}

// hostOf returns the host that a request went to, in a form that is safe to print.
func hostOf(x remote.Exchange) string { return remote.Printable(x.Host, remote.MaxName) }

// fileFailure returns the error of a failed attempt to get a token with the file at path. It
// reports the last request and its answer. It does not report the SDK's error, which repeats whole
// answers.
func fileFailure(ctx context.Context, path string, last remote.Exchange) error {
	where := hostOf(last)
	switch {
	case context.Cause(ctx) != nil || last.Err != nil:
		return remote.Unanswered(ctx, last.Err, where).Error(auth.StageExchange, controllerOperation)
	case last.Method == "":
		return fileError(path, errors.New("no request could be made with it"))
	}
	f := last.Answer.Refusal(where, health)
	if s := last.Answer.Status; s >= http.StatusBadRequest && f.Code == auth.CodeResponseInvalid {
		f.Code, f.What = auth.CodeTrustRefused, fmt.Sprintf("HTTP status %d", s)
		f.Fix = "check the identity that the credentials file " + remote.Printable(path, remote.MaxName) + " names, and who may use that identity"
	}
	return f.Error(auth.StageExchange, controllerOperation)
}
