package gcp

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// MetadataHost is the host name of the metadata server. Clients call it over plain HTTP. The
// environment variable GCE_METADATA_HOST makes them call another host.
const MetadataHost = "metadata.google.internal"

// metadataRoot is the root path of the metadata server's values.
const metadataRoot = "/computeMetadata/v1/"

// Paths below metadataRoot whose answers are not fixed texts.
const (
	defaultAccount = "instance/service-accounts/default/"
	pathToken      = defaultAccount + "token"
	pathIdentity   = defaultAccount + "identity"
)

// PutMetadata starts the metadata server, or changes its values. The error is a [*setting.Error].
func (c *Cloud) PutMetadata(m Metadata) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkMetadata(m); err != nil {
		return err
	}
	if len(m.Scopes) == 0 {
		m.Scopes = []string{scopeCloudPlatform}
	}
	c.metadata.Store(&m)
	return nil
}

func (c *Cloud) checkMetadata(m Metadata) error {
	pr := c.projects[m.Project]
	namespace, name, _ := strings.Cut(m.KubernetesServiceAccount, "/")
	switch {
	case pr == nil:
		return setting.Invalid("project", "there is no project %q", m.Project)
	case (m.ClusterName == "") != (m.ClusterLocation == ""):
		return setting.Invalid("clusterName", "give it and clusterLocation, or none of them")
	case m.ClusterName != "" && pr.clusters[clusterURL(pr.universe, pr.id, m.ClusterLocation, m.ClusterName)] == nil:
		return setting.Invalid("clusterName", "project %s has no cluster %q in %s", pr.id, m.ClusterName, m.ClusterLocation)
	case m.KubernetesServiceAccount != "" && m.ClusterName == "":
		return setting.Invalid("kubernetesServiceAccount", "give it with a cluster only")
	case m.KubernetesServiceAccount != "" && (!kubernetesPattern.MatchString(namespace) || !kubernetesPattern.MatchString(name)):
		return setting.Invalid("kubernetesServiceAccount", "write it as <namespace>/<name>")
	case m.ServiceAccount != "" && m.KubernetesServiceAccount == "" && c.findAccount(m.ServiceAccount, pr.universe) == nil:
		return setting.Invalid("serviceAccount", "there is no service account %q", m.ServiceAccount)
	}
	return nil
}

// DeleteMetadata stops the metadata server, if there is one.
func (c *Cloud) DeleteMetadata() { c.metadata.Store(nil) }

// HasMetadata reports whether the cloud has a metadata server.
func (c *Cloud) HasMetadata() bool { return c.metadata.Load() != nil }

// IsMetadata reports whether a request to the proxy's own address is for the metadata server.
func (c *Cloud) IsMetadata(r *http.Request) bool {
	return c.HasMetadata() &&
		(strings.HasPrefix(r.URL.Path, "/computeMetadata/") || (r.URL.Path == "/" && r.Header.Get("Metadata-Flavor") != ""))
}

// Metadata implements [service.Service] for the metadata server. Sources: Compute Engine, "VM
// metadata: query"; GKE, "About the GKE metadata server".
func (c *Cloud) Metadata(r *service.Request) (service.Protocol, service.Handler) {
	r.Call.Service = ServiceMetadata
	m := c.metadata.Load()
	path, below := strings.CutPrefix(r.URL.Path, metadataRoot)
	var tree map[string]string
	if m != nil {
		tree = c.metadataTree(m)
	}
	if _, known := tree[path]; below && known {
		r.Call.Operation = path // known paths only, so that callers cannot add names to the journal
	}
	return metadataProtocol(), func(r *service.Request) (service.Answer, *service.Refusal) {
		r.Reply.Set("Metadata-Flavor", "Google")
		r.Reply.Set("Server", "Metadata Server for VM")
		switch {
		case m == nil:
			return nil, notFound().Because("there is no metadata server")
		case r.Header.Get("X-Forwarded-For") != "":
			return nil, forbidden("X-Forwarded-For header is not allowed.")
		case r.Header.Get("Metadata-Flavor") != "Google":
			return nil, forbidden("Missing Metadata-Flavor:Google header.")
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			return nil, service.Refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "The request method is inappropriate for this URL.")
		case path == pathToken && below:
			return c.metadataToken(r, m)
		case path == pathIdentity && below:
			return c.identityToken(r, m)
		}
		return tellTree(r, tree)
	}
}

func forbidden(reason string) *service.Refusal {
	return service.Refuse(http.StatusForbidden, "Forbidden",
		"Your client does not have permission to get this URL from this server. "+reason).Because(reason)
}

// metadataTree returns the metadata server's values, by path below metadataRoot. For the paths of
// tokens, the values are empty.
func (c *Cloud) metadataTree(m *Metadata) map[string]string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	pr := c.projects[m.Project]
	tree := map[string]string{
		"project/project-id": pr.id, "project/numeric-project-id": pr.number,
		"universe/universe-domain": pr.universe,
	}
	if m.ClusterName != "" {
		tree["instance/attributes/cluster-name"] = m.ClusterName
		tree["instance/attributes/cluster-location"] = m.ClusterLocation
	}
	email := m.ServiceAccount
	if email == "" && m.KubernetesServiceAccount != "" {
		email = kubernetesPool(pr.id, pr.universe)
	}
	if email != "" {
		tree[defaultAccount+"email"] = email
		tree[defaultAccount+"aliases"] = "default\n"
		tree[defaultAccount+"scopes"] = strings.Join(m.Scopes, "\n") + "\n"
		tree[pathToken], tree[pathIdentity] = "", ""
	}
	return tree
}

// tellTree answers with the value at the request's path. For a directory, it answers with the names
// in the directory, or with the directory's values as JSON.
func tellTree(r *service.Request, tree map[string]string) (service.Answer, *service.Refusal) {
	path := strings.TrimPrefix(r.URL.Path, metadataRoot)
	if value, ok := tree[path]; ok {
		return writeText(value), nil
	}
	directory := strings.TrimSuffix(path, "/")
	if directory != "" {
		directory += "/"
	}
	if r.URL.Path == "/" || r.URL.Path == "/computeMetadata/" {
		return writeText("computeMetadata/\n"), nil
	}
	names := map[string]bool{}
	values := map[string]any{}
	for p, value := range tree {
		if rest, ok := strings.CutPrefix(p, directory); ok {
			name, _, deeper := strings.Cut(rest, "/")
			if deeper {
				name += "/"
			}
			names[name] = true
			if !deeper && p != pathToken && p != pathIdentity {
				values[name] = recursive(name, value)
			}
		}
	}
	switch {
	case len(names) == 0:
		return nil, notFound()
	case r.URL.Query().Get("recursive") == "true" && directory == defaultAccount:
		return writeJSON("application/json", http.StatusOK, values), nil
	}
	return writeText(strings.Join(slices.Sorted(maps.Keys(names)), "\n") + "\n"), nil
}

// recursive returns a value in the form for ?recursive=true, where lists become JSON lists.
func recursive(name, value string) any {
	if name == "aliases" || name == "scopes" {
		return strings.Fields(value)
	}
	return value
}

func writeText(text string) service.Answer {
	return service.Whole(http.StatusOK, "application/text", []byte(text))
}

// workload returns the principal that calls the metadata server.
func (c *Cloud) workload(m *Metadata) (principal, *service.Refusal) {
	c.mu.RLock()
	pr := c.projects[m.Project]
	var who principal
	var refusal *service.Refusal
	a := c.findAccount(m.ServiceAccount, pr.universe)
	if m.KubernetesServiceAccount == "" && a != nil {
		who = c.accountOf(a)
	}
	c.mu.RUnlock()
	if m.KubernetesServiceAccount != "" {
		token := oidc.Token{Subject: "system:serviceaccount:" + strings.Replace(m.KubernetesServiceAccount, "/", ":", 1)}
		who, refusal = kubernetesPrincipal(token, pr.number, kubernetesPool(pr.id, pr.universe),
			clusterURL(pr.universe, pr.id, m.ClusterLocation, m.ClusterName))
		who.universe = pr.universe
		if refusal == nil && m.ServiceAccount != "" {
			who, refusal = c.impersonate(who, []string{m.ServiceAccount})
		}
	}
	if refusal == nil && who.anonymous() {
		refusal = notFound().Because("the service account was deleted")
	}
	return who, refusal
}

// noToken, as the value of [service.Refusal.Detail], marks a refusal by IAM. Such a refusal is sent
// as plain text, as on GKE, and not as an HTML page.
type noToken struct{}

// metadataProtocol returns the error format of the metadata server.
func metadataProtocol() service.Protocol {
	p := page()
	p.Refuse = func(r *service.Request, e *service.Refusal) service.Answer {
		if e.Detail != (noToken{}) {
			return page().Refuse(r, e)
		}
		text := "Unable to generate access token; IAM returned " + strconv.Itoa(e.Status) +
			" " + http.StatusText(e.Status) + ": " + e.Message + "\n"
		if e.Status == http.StatusForbidden {
			text += "This error could be caused by a missing IAM policy binding on the target IAM service account.\n" +
				"For more information, refer to the Workload Identity documentation:\n" +
				"\thttps://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity#authenticating_to\n\n"
		}
		return service.Whole(e.Status, "text/plain; charset=utf-8", []byte(text))
	}
	return p
}

func (c *Cloud) metadataToken(r *service.Request, m *Metadata) (service.Answer, *service.Refusal) {
	who, refusal := c.workload(m)
	if refusal != nil {
		return nil, refusal.With(noToken{})
	}
	r.Call.Principal, r.Call.Role = who.name(), m.ServiceAccount
	scopes := m.Scopes
	// On GKE, callers may choose the scopes.
	if asked := r.URL.Query().Get("scopes"); asked != "" && m.ClusterName != "" {
		scopes = strings.Split(asked, ",")
	}
	prefix := prefixAccount
	if who.federated() {
		prefix = prefixFederated
	}
	token := c.issue(prefix, accessToken{who: who, scopes: scopes, expires: r.Now.Add(maxTokenLife)}, r.Now)
	return writeJSON("application/json", http.StatusOK, struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"` // seconds
		TokenType   string `json:"token_type"`
	}{token, int(maxTokenLife/time.Second) - 1, "Bearer"}), nil
}

// identityToken answers with a token of Google's own issuer. A Kubernetes ServiceAccount without an
// IAM service account gets no token. Source: Compute Engine, "Verify VM identity".
func (c *Cloud) identityToken(r *service.Request, m *Metadata) (service.Answer, *service.Refusal) {
	who, refusal := c.workload(m)
	audience := r.URL.Query().Get("audience")
	switch {
	case refusal != nil:
		return nil, refusal.With(noToken{})
	case who.federated():
		return nil, notFound().Because("a federated identity has no identity tokens").With(noToken{})
	case audience == "":
		return nil, service.Refuse(http.StatusBadRequest, "BadRequest", "non-empty audience parameter required")
	}
	r.Call.Principal, r.Call.Audience = who.name(), audience
	claims := oidc.Claims{
		"aud": audience, "sub": who.uniqueID, "azp": who.uniqueID,
		"iat": r.Now.Unix(), "nbf": nil, "exp": r.Now.Add(maxTokenLife).Unix(),
	}
	if r.URL.Query().Get("format") == "full" || m.ClusterName != "" {
		claims["email"], claims["email_verified"] = who.email, true
	}
	return service.Whole(http.StatusOK, "text/html", []byte(wire.Must(c.google().Mint(claims)))), nil
}

// readAccounts implements [service.Service] for the host of Google's own issuer. The host serves
// the issuer's discovery document and keys. The real Google serves the keys at another host,
// www.googleapis.com.
func (c *Cloud) readAccounts(r *service.Request) (service.Protocol, service.Handler) {
	r.Call.Operation = "GetDocument"
	return page(), func(r *service.Request) (service.Answer, *service.Refusal) {
		r.Call.Resource = (&url.URL{Path: r.URL.Path}).EscapedPath()
		return r.Forward(c.google(), r.Request, nil)
	}
}
