package cloudtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// Admin changes and questions a cloud in another process, through the admin API at its proxy.
type Admin struct {
	// URL is the proxy's, as [Cloud.ProxyURL] gives it.
	URL string
	// Client makes the requests. It must not use a proxy. Nil means one without proxy and with the context's deadline only.
	Client *http.Client
}

// AdminError is a request that the cloud refused. It wraps what the change would have returned in the cloud's own process: [setting.ErrNotFound], or a
// [*setting.Error] that names the field.
type AdminError struct {
	// Status is the HTTP status.
	Status int
	// Message is the cloud's explanation.
	Message string
	// Field is the field at fault, as in [setting.Error]; empty if it was not a field's.
	Field string
}

// Error returns the explanation.
func (e *AdminError) Error() string {
	return fmt.Sprintf("local cloud: HTTP %d: %s", e.Status, e.Message)
}

// Unwrap returns what the change would have returned in the cloud's own process.
func (e *AdminError) Unwrap() error {
	switch {
	case e.Status == http.StatusNotFound:
		return setting.ErrNotFound
	case e.Field != "":
		_, problem, _ := strings.Cut(e.Message, e.Field+": ")
		return &setting.Error{Field: e.Field, Err: errors.New(problem)}
	}
	return nil
}

// Journal returns the calls that f selects, and the totals.
func (a *Admin) Journal(ctx context.Context, f journal.Filter) (JournalPage, error) {
	var page JournalPage
	err := a.call(ctx, http.MethodGet, "/journal", f.Query(), nil, &page)
	return page, err
}

// ResetJournal forgets all calls.
func (a *Admin) ResetJournal(ctx context.Context) error {
	return a.call(ctx, http.MethodDelete, "/journal", nil, nil, nil)
}

// Faults returns the faults in force.
func (a *Admin) Faults(ctx context.Context) ([]fault.Fault, error) {
	var page faultsPage
	err := a.call(ctx, http.MethodGet, "/faults", nil, nil, &page)
	return page.Faults, err
}

// AddFault puts a fault in force and returns its ID.
func (a *Admin) AddFault(ctx context.Context, f fault.Fault) (string, error) {
	var id faultID
	err := a.call(ctx, http.MethodPost, "/faults", nil, f, &id)
	return id.ID, err
}

// RemoveFault ends a fault.
func (a *Admin) RemoveFault(ctx context.Context, id string) error {
	return a.call(ctx, http.MethodDelete, "/faults/"+url.PathEscape(id), nil, nil, nil)
}

// ClearFaults ends all faults.
func (a *Admin) ClearFaults(ctx context.Context) error {
	return a.call(ctx, http.MethodDelete, "/faults", nil, nil, nil)
}

// SetQuotas replaces all quotas.
func (a *Admin) SetQuotas(ctx context.Context, quotas []fault.Quota) error {
	return a.call(ctx, http.MethodPut, "/quotas", nil, append([]fault.Quota{}, quotas...), nil)
}

// PutIssuer serves an issuer with fixed keys.
func (a *Admin) PutIssuer(ctx context.Context, s oidc.Static) error {
	return a.call(ctx, http.MethodPut, "/issuers", nil, s, nil)
}

// CAPEM returns the CA's certificate.
func (a *Admin) CAPEM(ctx context.Context) ([]byte, error) {
	var pem []byte
	err := a.call(ctx, http.MethodGet, "/ca.pem", nil, nil, &pem)
	return pem, err
}

// Env is [Cloud.Env]; caFile is where the CA is written.
func (a *Admin) Env(ctx context.Context, caFile string) ([]string, error) {
	var env []string
	err := a.call(ctx, http.MethodGet, "/env", url.Values{"ca": {caFile}}, nil, &env)
	return env, err
}

// AddAccount is [aws.Cloud.AddAccount].
func (a *Admin) AddAccount(ctx context.Context, account aws.Account) error {
	return a.call(ctx, http.MethodPost, "/aws/accounts", nil, account, nil)
}

// PutOIDCProvider is [aws.Cloud.PutOIDCProvider].
func (a *Admin) PutOIDCProvider(ctx context.Context, account string, p aws.OIDCProvider) error {
	return a.call(ctx, http.MethodPut, awsPath(account, "oidc-providers"), nil, p, nil)
}

// DeleteOIDCProvider is [aws.Cloud.DeleteOIDCProvider].
func (a *Admin) DeleteOIDCProvider(ctx context.Context, account, issuer string) error {
	return a.call(ctx, http.MethodDelete, awsPath(account, "oidc-providers"), url.Values{"url": {issuer}}, nil, nil)
}

// PutRole is [aws.Cloud.PutRole].
func (a *Admin) PutRole(ctx context.Context, account string, r aws.Role) error {
	return a.call(ctx, http.MethodPut, awsPath(account, "roles"), nil, r, nil)
}

// PutTrustPolicy is [aws.Cloud.PutTrustPolicy].
func (a *Admin) PutTrustPolicy(ctx context.Context, account, role string, document json.RawMessage) error {
	return a.call(ctx, http.MethodPut, awsPath(account, "trust-policy"), url.Values{"role": {role}}, document, nil)
}

// DeleteRole is [aws.Cloud.DeleteRole].
func (a *Admin) DeleteRole(ctx context.Context, account, role string) error {
	return a.call(ctx, http.MethodDelete, awsPath(account, "roles"), url.Values{"name": {role}}, nil, nil)
}

// PutUser is [aws.Cloud.PutUser].
func (a *Admin) PutUser(ctx context.Context, account string, u aws.User) error {
	return a.call(ctx, http.MethodPut, awsPath(account, "users"), nil, u, nil)
}

// DeleteUser is [aws.Cloud.DeleteUser].
func (a *Admin) DeleteUser(ctx context.Context, account, user string) error {
	return a.call(ctx, http.MethodDelete, awsPath(account, "users"), url.Values{"name": {user}}, nil, nil)
}

// PutRepository is [aws.Cloud.PutRepository].
func (a *Admin) PutRepository(ctx context.Context, account string, r aws.Repository) error {
	return a.call(ctx, http.MethodPut, awsPath(account, "repositories"), nil, r, nil)
}

// DeleteRepository is [aws.Cloud.DeleteRepository].
func (a *Admin) DeleteRepository(ctx context.Context, account, region, name string) error {
	return a.call(ctx, http.MethodDelete, awsPath(account, "repositories"), url.Values{"region": {region}, "name": {name}}, nil, nil)
}

// PutBucket is [aws.Cloud.PutBucket].
func (a *Admin) PutBucket(ctx context.Context, account string, b aws.Bucket) error {
	return a.call(ctx, http.MethodPut, awsPath(account, "buckets"), nil, b, nil)
}

// DeleteBucket is [aws.Cloud.DeleteBucket].
func (a *Admin) DeleteBucket(ctx context.Context, account, name string) error {
	return a.call(ctx, http.MethodDelete, awsPath(account, "buckets"), url.Values{"name": {name}}, nil, nil)
}

func awsPath(account, what string) string {
	return "/aws/accounts/" + url.PathEscape(account) + "/" + what
}

// AddProject is [gcp.Cloud.AddProject].
func (a *Admin) AddProject(ctx context.Context, p gcp.Project) error {
	return a.call(ctx, http.MethodPost, "/gcp/projects", nil, p, nil)
}

// PutBindings is [gcp.Cloud.PutBindings].
func (a *Admin) PutBindings(ctx context.Context, project string, bindings []gcp.Binding) error {
	return a.call(ctx, http.MethodPut, gcpPath(project, "bindings"), nil, append([]gcp.Binding{}, bindings...), nil)
}

// PutPool is [gcp.Cloud.PutPool].
func (a *Admin) PutPool(ctx context.Context, project string, p gcp.Pool) error {
	return a.call(ctx, http.MethodPut, gcpPath(project, "pools"), nil, p, nil)
}

// DeletePool is [gcp.Cloud.DeletePool].
func (a *Admin) DeletePool(ctx context.Context, project, pool string) error {
	return a.call(ctx, http.MethodDelete, gcpPath(project, "pools"), url.Values{"id": {pool}}, nil, nil)
}

// PutCluster is [gcp.Cloud.PutCluster].
func (a *Admin) PutCluster(ctx context.Context, project string, c gcp.Cluster) error {
	return a.call(ctx, http.MethodPut, gcpPath(project, "clusters"), nil, c, nil)
}

// DeleteCluster is [gcp.Cloud.DeleteCluster].
func (a *Admin) DeleteCluster(ctx context.Context, project, location, name string) error {
	return a.call(ctx, http.MethodDelete, gcpPath(project, "clusters"), url.Values{"location": {location}, "name": {name}}, nil, nil)
}

// PutServiceAccount is [gcp.Cloud.PutServiceAccount].
func (a *Admin) PutServiceAccount(ctx context.Context, project string, s gcp.ServiceAccount) error {
	return a.call(ctx, http.MethodPut, gcpPath(project, "service-accounts"), nil, s, nil)
}

// DeleteServiceAccount is [gcp.Cloud.DeleteServiceAccount].
func (a *Admin) DeleteServiceAccount(ctx context.Context, project, email string) error {
	return a.call(ctx, http.MethodDelete, gcpPath(project, "service-accounts"), url.Values{"email": {email}}, nil, nil)
}

// PutArtifactRepository is [gcp.Cloud.PutRepository].
func (a *Admin) PutArtifactRepository(ctx context.Context, project string, r gcp.Repository) error {
	return a.call(ctx, http.MethodPut, gcpPath(project, "repositories"), nil, r, nil)
}

// DeleteArtifactRepository is [gcp.Cloud.DeleteRepository].
func (a *Admin) DeleteArtifactRepository(ctx context.Context, project, location, name string) error {
	return a.call(ctx, http.MethodDelete, gcpPath(project, "repositories"), url.Values{"location": {location}, "name": {name}}, nil, nil)
}

// PutStorageBucket is [gcp.Cloud.PutBucket].
func (a *Admin) PutStorageBucket(ctx context.Context, project string, b gcp.Bucket) error {
	return a.call(ctx, http.MethodPut, gcpPath(project, "buckets"), nil, b, nil)
}

// DeleteStorageBucket is [gcp.Cloud.DeleteBucket].
func (a *Admin) DeleteStorageBucket(ctx context.Context, project, name string) error {
	return a.call(ctx, http.MethodDelete, gcpPath(project, "buckets"), url.Values{"name": {name}}, nil, nil)
}

// PutMetadata is [gcp.Cloud.PutMetadata].
func (a *Admin) PutMetadata(ctx context.Context, m gcp.Metadata) error {
	return a.call(ctx, http.MethodPut, "/gcp/metadata", nil, m, nil)
}

// DeleteMetadata is [gcp.Cloud.DeleteMetadata].
func (a *Admin) DeleteMetadata(ctx context.Context) error {
	return a.call(ctx, http.MethodDelete, "/gcp/metadata", nil, nil, nil)
}

func gcpPath(project, what string) string {
	return "/gcp/projects/" + url.PathEscape(project) + "/" + what
}

// call makes a request. Into is nil, a *[]byte for the raw answer, or what the answer's JSON is decoded into.
func (a *Admin) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	var reader io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("local cloud: %w", err)
		}
		reader = bytes.NewReader(encoded)
	}
	target := strings.TrimSuffix(a.URL, "/") + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, reader)
	if err != nil {
		return fmt.Errorf("local cloud: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	client := a.Client
	if client == nil {
		direct := &http.Transport{DisableKeepAlives: true}
		client = &http.Client{Transport: direct}
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("local cloud: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("local cloud: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		refused := adminError{Error: res.Status}
		_ = json.Unmarshal(answer, &refused) // the status remains if there is no explanation
		return &AdminError{Status: res.StatusCode, Message: refused.Error, Field: refused.Field}
	}
	switch into := into.(type) {
	case nil:
	case *[]byte:
		*into = answer
	default:
		if err := json.Unmarshal(answer, into); err != nil {
			return fmt.Errorf("local cloud: %s %s: %w", method, path, err)
		}
	}
	return nil
}
