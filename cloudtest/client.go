package cloudtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/alibaba"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/change"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// Admin changes and queries a cloud in another process, through the admin API at its proxy.
type Admin struct {
	// URL is the proxy's URL, see [Cloud.ProxyURL].
	URL string
	// Client makes the requests. It must not use a proxy. Nil means a client without proxy, limited
	// by the context's deadline only.
	Client *http.Client
}

// AdminError says that the cloud refused a request. It wraps [setting.ErrNotFound] if the object to
// change does not exist. It wraps a [*setting.Error] if a setting is invalid. The errors of the
// cloud's own methods do the same.
type AdminError struct {
	// Status is the HTTP status.
	Status int
	// Message is the cloud's explanation.
	Message string
	// Field is the invalid field, as in [setting.Error]; empty for other errors.
	Field string
}

// Error returns the HTTP status and the explanation.
func (e *AdminError) Error() string {
	return fmt.Sprintf("local cloud: HTTP %d: %s", e.Status, e.Message)
}

// Unwrap returns [setting.ErrNotFound] for status 404, a [*setting.Error] for an invalid field, and
// nil for other errors.
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

// PutIssuer adds or replaces an issuer with fixed public keys. The cloud serves its discovery
// document and keys.
func (a *Admin) PutIssuer(ctx context.Context, s oidc.Static) error {
	return a.call(ctx, http.MethodPut, "/issuers", nil, s, nil)
}

// CAPEM returns the CA's certificate.
func (a *Admin) CAPEM(ctx context.Context) ([]byte, error) {
	var pem []byte
	err := a.call(ctx, http.MethodGet, "/ca.pem", nil, nil, &pem)
	return pem, err
}

// Env returns the environment variables with which a program uses the local cloud, as [Cloud.Env]
// does. The program must find the CA's certificate in the file caFile.
func (a *Admin) Env(ctx context.Context, caFile string) ([]string, error) {
	var env []string
	err := a.call(ctx, http.MethodGet, "/env", url.Values{"ca": {caFile}}, nil, &env)
	return env, err
}

// AWS returns the functions that change the local AWS.
func (a *Admin) AWS() aws.Admin { return aws.NewAdmin(&change.Table[*aws.Cloud]{Send: a.change}) }

// Azure returns the functions that change the local Azure.
func (a *Admin) Azure() azure.Admin {
	return azure.NewAdmin(&change.Table[*azure.Cloud]{Send: a.change})
}

// GCP returns the functions that change the local Google Cloud.
func (a *Admin) GCP() gcp.Admin { return gcp.NewAdmin(&change.Table[*gcp.Cloud]{Send: a.change}) }

// Alibaba returns the functions that change the local Alibaba Cloud.
func (a *Admin) Alibaba() alibaba.Admin {
	return alibaba.NewAdmin(&change.Table[*alibaba.Cloud]{Send: a.change})
}

// change requests a change of a cloud. It implements [change.Sender].
func (a *Admin) change(ctx context.Context, method, path string, query url.Values, body any) error {
	return a.call(ctx, method, path, query, body, nil)
}

// call makes a request and decodes the answer's JSON body into the given pointer. A *[]byte gets
// the body unchanged. If the pointer is nil, the body is dropped.
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
	client := cmp.Or(a.Client, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
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
		_ = json.Unmarshal(answer, &refused) // without an "error", the message is res.Status
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
