package azure

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// MetadataHost is the address of the instance metadata service. Source: Microsoft Learn, "Azure
// Instance Metadata Service".
const MetadataHost = "169.254.169.254"

// Path and operation of the metadata service's token endpoint.
const (
	metadataRoot = "/metadata/"
	metadataPath = "/metadata/identity/oauth2/token"
	opManaged    = "ManagedIdentityToken"
)

// HasMetadata reports whether the cloud has an instance metadata service.
func (c *Cloud) HasMetadata() bool { return c.identity.Load() != nil }

// IsMetadata reports whether a request over plain HTTP is for the metadata service. Clients send
// such requests to the service's address. If their environment has
// AZURE_POD_IDENTITY_AUTHORITY_HOST, they send the requests to the proxy's address.
func (c *Cloud) IsMetadata(r *http.Request) bool {
	host := r.URL.Host
	if h, port, err := net.SplitHostPort(host); err == nil && port == "80" {
		host = h
	}
	return (host == "" || host == MetadataHost) && strings.HasPrefix(r.URL.Path, metadataRoot) && c.HasMetadata()
}

// metadataServer is the header Server of the metadata service's answers.
const metadataServer = "IMDS/150.870.65.1854"

// metadataProtocol returns the error format of the metadata service. Source: Microsoft Learn, "How
// to use managed identities on an Azure VM to acquire an access token", error handling.
func metadataProtocol() service.Protocol {
	return service.Protocol{
		Refuse: func(r *service.Request, e *service.Refusal) service.Answer {
			r.Reply.Set("Server", metadataServer)
			return writeJSON(e.Status, map[string]string{"error": e.Code, "error_description": e.Message})
		},
		Failure:     service.Refuse(http.StatusInternalServerError, "unknown", "Failed to retrieve token from the Active directory."),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, "service_unavailable", "The service is unavailable."),
		Throttled:   service.Refuse(http.StatusTooManyRequests, "too_many_requests", "Too many requests"),
		Broken:      service.Whole(http.StatusOK, jsonType, []byte(`{"access_token":"eyJ`)),
	}
}

// metadataToken is the answer with a token. All values are text.
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

// Metadata implements [service.Service] for the instance metadata service. Use it for requests for
// which [Cloud.IsMetadata] returns true.
func (c *Cloud) Metadata(r *service.Request) (service.Protocol, service.Handler) {
	r.Call.Service = ServiceIMDS
	if strings.TrimSuffix(r.URL.Path, "/") == metadataPath { // MSAL for Node appends a slash
		r.Call.Operation = opManaged
	}
	return metadataProtocol(), func(r *service.Request) (service.Answer, *service.Refusal) {
		answer, no := c.managedToken(r)
		if no != nil {
			return nil, no
		}
		r.Reply.Set("Server", metadataServer)
		return writeJSON(http.StatusOK, answer), nil
	}
}

// firstManagedVersion is the first API version that issues tokens. Versions are compared as text.
const firstManagedVersion = "2018-02-01"

// managedToken issues an access token of one of the machine's identities.
func (c *Cloud) managedToken(r *service.Request) (any, *service.Refusal) {
	badQuery := func(message string) (any, *service.Refusal) {
		return nil, service.Refuse(http.StatusBadRequest, "invalid_request", message)
	}
	query, err := readValues(r.URL.RawQuery)
	version, resource := query.Get("api-version"), query.Get("resource")
	switch {
	// Web pages and most proxies cannot send this header, so their requests are refused.
	case r.Header.Get("Metadata") != "true":
		return nil, service.Refuse(http.StatusBadRequest, "bad_request_102", "Required metadata header not specified")
	case r.Header.Get("X-Forwarded-For") != "":
		return badQuery("Request contains the header X-Forwarded-For")
	case r.Call.Operation == "":
		return nil, service.Refuse(http.StatusNotFound, "not_found", "The requested resource does not exist.")
	case r.Method != http.MethodGet:
		return nil, service.Refuse(http.StatusMethodNotAllowed, "method_not_allowed", "The method is not allowed.")
	case err != nil:
		return badQuery(printable(err.Error()))
	case version == "":
		return badQuery("Required query variable 'api-version' is missing")
	case !versionPattern.MatchString(version) || version < firstManagedVersion:
		return badQuery("Invalid api-version")
	case resource == "":
		return badQuery("Required query variable 'resource' is missing")
	}
	r.Call.Resource = resource
	t, app, no := c.managedIdentity(r, query)
	if no != nil {
		return nil, no
	}
	r.Call.Principal = principalName(t, app)
	if !c.isResource(t, resource) {
		return nil, service.Refuse(http.StatusBadRequest, "invalid_resource",
			"AADSTS500011: The resource principal named "+printable(resource)+
				" was not found in the tenant named "+t.id+
				". This can happen if the application has not been installed by the administrator of the tenant "+
				"or consented to by any user in the tenant. You might have sent your authentication request to the wrong tenant.")
	}
	life := strconv.Itoa(int(ManagedTokenLife/time.Second) - 1)
	return metadataToken{
		AccessToken: c.issueAccessToken(t, app, resource, r.Now, ManagedTokenLife), ClientID: app.clientID,
		ExpiresIn: life, ExpiresOn: strconv.FormatInt(r.Now.Add(ManagedTokenLife).Unix(), 10), ExtExpiresIn: life,
		NotBefore: strconv.FormatInt(r.Now.Unix(), 10), Resource: resource, TokenType: "Bearer",
	}, nil
}

// managedIdentity finds the identity that the query names, by default the machine's first identity.
func (c *Cloud) managedIdentity(r *service.Request, query url.Values) (*tenant, *application, *service.Refusal) {
	notFound := service.Refuse(http.StatusBadRequest, "invalid_request", "Identity not found")
	named := slices.DeleteFunc([]string{"client_id", "object_id", "principal_id", "msi_res_id", "mi_res_id"},
		func(name string) bool { return !query.Has(name) })
	if len(named) > 1 {
		return nil, nil, notFound.Because("the query names an identity in more than one way")
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	machine := c.identity.Load()
	if machine == nil || c.tenants[machine.Tenant] == nil {
		return nil, nil, notFound.Because("the machine has no identity")
	}
	t := c.tenants[machine.Tenant]
	if len(named) == 0 {
		named, query = []string{"client_id"}, url.Values{"client_id": {machine.ClientIDs[0]}}
	}
	r.Call.Role = query.Get(named[0])
	for _, id := range machine.ClientIDs {
		app := t.apps[id]
		if app == nil {
			continue
		}
		name := map[string]string{"client_id": app.clientID, "object_id": app.objectID, "principal_id": app.objectID}[named[0]]
		if name != "" && name == strings.ToLower(r.Call.Role) {
			return t, app, nil
		}
	}
	return nil, nil, notFound.Because("no identity of the machine is so named")
}
