package azure

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// MetadataHost is the address of the instance metadata service. Source: Microsoft Learn, "Azure Instance Metadata Service".
const MetadataHost = "169.254.169.254"

// Path and operation of the metadata service's part that gives tokens.
const (
	metadataRoot = "/metadata/"
	metadataPath = "/metadata/identity/oauth2/token"
	opManaged    = "ManagedIdentityToken"
)

// HasMetadata says whether there is an instance metadata service.
func (c *Cloud) HasMetadata() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.identity != nil
}

// IsMetadata says whether a request over plain HTTP is for the metadata service: at its address, or at the proxy's own, where clients look for it that have
// AZURE_POD_IDENTITY_AUTHORITY_HOST in their environment.
func (c *Cloud) IsMetadata(r *http.Request) bool {
	host := r.URL.Host
	if h, port, err := net.SplitHostPort(host); err == nil && port == "80" {
		host = h
	}
	return (host == "" || host == MetadataHost) && strings.HasPrefix(r.URL.Path, metadataRoot) && c.HasMetadata()
}

// metadataProtocol is how the metadata service answers. Source: Microsoft Learn, "How to use managed identities on an Azure VM to acquire an access token",
// error handling.
type metadataProtocol struct{}

type metadataError struct {
	Error            string `json:"error"`
	ErrorDescription string `json:"error_description"`
}

func metadataRefusal(status int, oauth, message string) *refusal {
	return &refusal{status: status, code: oauth, oauth: oauth, message: message}
}

func (metadataProtocol) refuse(w http.ResponseWriter, call *journal.Call, e *refusal) {
	e.note(call)
	w.Header().Set("Server", "IMDS/150.870.65.1854")
	writeJSON(w, e.status, metadataError{e.oauth, e.message})
}

func (metadataProtocol) faulted(kind fault.Kind) *refusal {
	switch kind {
	case fault.Throttle:
		return metadataRefusal(http.StatusTooManyRequests, "too_many_requests", "Too many requests")
	case fault.Unavailable:
		return metadataRefusal(http.StatusServiceUnavailable, "service_unavailable", "The service is unavailable.")
	default:
		return metadataRefusal(http.StatusInternalServerError, "unknown", "Failed to retrieve token from the Active directory.")
	}
}

func (metadataProtocol) broken() (contentType, body string) {
	return "application/json; charset=utf-8", `{"access_token":"eyJ`
}

// metadataToken is an answer; all its values are text.
type metadataToken struct {
	AccessToken  string `json:"access_token"`
	ClientID     string `json:"client_id"`
	ExpiresIn    string `json:"expires_in"`     // seconds
	ExpiresOn    string `json:"expires_on"`     // seconds since 1970
	ExtExpiresIn string `json:"ext_expires_in"` // seconds
	NotBefore    string `json:"not_before"`     // seconds since 1970
	Resource     string `json:"resource"`
	TokenType    string `json:"token_type"`
}

// ServeMetadata answers a request for which [Cloud.IsMetadata] holds, on the terms of [Cloud.ServeCall].
func (c *Cloud) ServeMetadata(w http.ResponseWriter, r *http.Request, call *journal.Call) {
	call.Service = ServiceIMDS
	if strings.TrimSuffix(r.URL.Path, "/") == metadataPath { // MSAL for Node appends a slash to it
		call.Operation = opManaged
	}
	p := metadataProtocol{}
	now, ok := c.begin(r.Context(), w, p, call)
	if !ok {
		return
	}
	answer, no := c.managedToken(r, call, now)
	if no != nil {
		p.refuse(w, call, no)
		return
	}
	w.Header().Set("Server", "IMDS/150.870.65.1854")
	writeJSON(w, http.StatusOK, answer)
}

// firstManagedVersion is the first version of the API that gives tokens. Versions order as text.
const firstManagedVersion = "2018-02-01"

// managedToken gives an access token of one of the machine's identities.
func (c *Cloud) managedToken(r *http.Request, call *journal.Call, now time.Time) (any, *refusal) {
	badQuery := func(message string) (any, *refusal) {
		return nil, metadataRefusal(http.StatusBadRequest, "invalid_request", message)
	}
	query, err := readValues(r.URL.RawQuery)
	version, resource := query.Get("api-version"), query.Get("resource")
	switch {
	case r.Header.Get("Metadata") != "true": // a page in a browser cannot send it, nor can most forwarding servers
		return nil, metadataRefusal(http.StatusBadRequest, "bad_request_102", "Required metadata header not specified")
	case r.Header.Get("X-Forwarded-For") != "":
		return badQuery("Request contains the header X-Forwarded-For")
	case call.Operation == "":
		return nil, metadataRefusal(http.StatusNotFound, "not_found", "The requested resource does not exist.")
	case r.Method != http.MethodGet:
		return nil, metadataRefusal(http.StatusMethodNotAllowed, "method_not_allowed", "The method is not allowed.")
	case err != nil:
		return badQuery(printable(err.Error()))
	case version == "":
		return badQuery("Required query variable 'api-version' is missing")
	case !versionPattern.MatchString(version) || version < firstManagedVersion:
		return badQuery("Invalid api-version")
	case resource == "":
		return badQuery("Required query variable 'resource' is missing")
	}
	call.Resource = resource
	t, app, no := c.managedIdentity(query, call)
	if no != nil {
		return nil, no
	}
	call.Principal = principalName(t, app)
	if !c.isResource(t, resource) {
		return nil, metadataRefusal(http.StatusBadRequest, "invalid_resource", "AADSTS500011: The resource principal named "+printable(resource)+
			" was not found in the tenant named "+t.id+". This can happen if the application has not been installed by the administrator of the tenant "+
			"or consented to by any user in the tenant. You might have sent your authentication request to the wrong tenant.")
	}
	life := strconv.Itoa(int(ManagedTokenLife/time.Second) - 1)
	return metadataToken{
		AccessToken: c.issueAccessToken(t, app, resource, now, ManagedTokenLife), ClientID: app.clientID,
		ExpiresIn: life, ExpiresOn: strconv.FormatInt(now.Add(ManagedTokenLife).Unix(), 10), ExtExpiresIn: life,
		NotBefore: strconv.FormatInt(now.Unix(), 10), Resource: resource, TokenType: "Bearer",
	}, nil
}

// managedIdentity finds the identity that a query names, or the default one.
func (c *Cloud) managedIdentity(query url.Values, call *journal.Call) (*tenant, *application, *refusal) {
	notFound := metadataRefusal(http.StatusBadRequest, "invalid_request", "Identity not found")
	named := slices.DeleteFunc([]string{"client_id", "object_id", "principal_id", "msi_res_id", "mi_res_id"}, func(name string) bool { return !query.Has(name) })
	if len(named) > 1 {
		return nil, nil, notFound.because("the query names an identity in more than one way")
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.identity == nil || c.tenants[c.identity.Tenant] == nil {
		return nil, nil, notFound.because("the machine has no identity")
	}
	t := c.tenants[c.identity.Tenant]
	if len(named) == 0 {
		named, query = []string{"client_id"}, url.Values{"client_id": {c.identity.ClientIDs[0]}}
	}
	call.Role = query.Get(named[0])
	for _, id := range c.identity.ClientIDs {
		app := t.apps[id]
		if app == nil {
			continue
		}
		switch wanted := strings.ToLower(call.Role); named[0] {
		case "client_id":
			if wanted == app.clientID {
				return t, app, nil
			}
		case "object_id", "principal_id":
			if wanted == app.objectID {
				return t, app, nil
			}
		}
	}
	return nil, nil, notFound.because("no identity of the machine is so named")
}
