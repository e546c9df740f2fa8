package gcp

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// MetadataHost is the name of the metadata server, to which clients speak plain HTTP unless GCE_METADATA_HOST names another one.
const MetadataHost = "metadata.google.internal"

// metadataRoot is the path of what the metadata server has.
const metadataRoot = "/computeMetadata/v1/"

// Paths below metadataRoot that are more than a text.
const (
	defaultAccount = "instance/service-accounts/default/"
	pathToken      = defaultAccount + "token"
	pathIdentity   = defaultAccount + "identity"
)

// PutMetadata begins to answer as a metadata server, or changes what it tells. The error is a [*setting.Error].
func (c *Cloud) PutMetadata(m Metadata) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkMetadata(m); err != nil {
		return err
	}
	if len(m.Scopes) == 0 {
		m.Scopes = []string{scopeCloudPlatform}
	}
	c.metadata = &m
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

// DeleteMetadata ends the metadata server. There need not be one.
func (c *Cloud) DeleteMetadata() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.metadata = nil
}

// HasMetadata says whether there is a metadata server.
func (c *Cloud) HasMetadata() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.metadata != nil
}

// IsMetadata says whether a request that did not name a host of the cloud's is for its metadata server.
func (c *Cloud) IsMetadata(r *http.Request) bool {
	return c.HasMetadata() && (strings.HasPrefix(r.URL.Path, "/computeMetadata/") || (r.URL.Path == "/" && r.Header.Get("Metadata-Flavor") != ""))
}

// ServeMetadata answers a request as the metadata server, on the terms of [Cloud.ServeCall]. Sources: Compute Engine, "VM metadata: query"; GKE, "About
// the GKE metadata server".
func (c *Cloud) ServeMetadata(w http.ResponseWriter, r *http.Request, call *journal.Call) {
	call.Service = ServiceMetadata
	c.mu.RLock()
	m := c.metadata
	c.mu.RUnlock()
	path, ok := strings.CutPrefix(r.URL.Path, metadataRoot)
	var tree map[string]string
	if m != nil {
		tree = c.metadataTree(m)
	}
	if _, known := tree[path]; ok && known {
		call.Operation = path // names are not the caller's to invent
	}
	now, ok2 := c.begin(r.Context(), w, page{}, call)
	if !ok2 {
		return
	}
	w.Header().Set("Metadata-Flavor", "Google")
	w.Header().Set("Server", "Metadata Server for VM")
	forbidden := func(reason string) {
		page{}.refuse(w, call, refused(http.StatusForbidden, "Forbidden", "Your client does not have permission to get this URL from this server. "+reason).because(reason))
	}
	switch {
	case m == nil:
		page{}.refuse(w, call, notFound().because("there is no metadata server"))
	case r.Header.Get("X-Forwarded-For") != "":
		forbidden("X-Forwarded-For header is not allowed.")
	case r.Header.Get("Metadata-Flavor") != "Google":
		forbidden("Missing Metadata-Flavor:Google header.")
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		page{}.refuse(w, call, refused(http.StatusMethodNotAllowed, "MethodNotAllowed", "The request method is inappropriate for this URL."))
	case path == pathToken && ok:
		c.serveMetadataToken(w, r, m, call, now)
	case path == pathIdentity && ok:
		c.serveIdentityToken(w, r, m, call, now)
	default:
		serveTree(w, r, tree, call)
	}
}

// metadataTree is what the metadata server has, by path below metadataRoot. Tokens are there by name only.
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

// serveTree answers with a text, a directory's names, or a directory's content as JSON.
func serveTree(w http.ResponseWriter, r *http.Request, tree map[string]string, call *journal.Call) {
	path := strings.TrimPrefix(r.URL.Path, metadataRoot)
	if value, ok := tree[path]; ok {
		writeText(w, value)
		return
	}
	directory := strings.TrimSuffix(path, "/")
	if directory != "" {
		directory += "/"
	}
	if r.URL.Path == "/" || r.URL.Path == "/computeMetadata/" {
		writeText(w, "computeMetadata/\n")
		return
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
		page{}.refuse(w, call, notFound())
	case r.URL.Query().Get("recursive") == "true" && directory == defaultAccount:
		writeJSON(w, http.StatusOK, "application/json", values)
	default:
		writeText(w, strings.Join(slices.Sorted(maps.Keys(names)), "\n")+"\n")
	}
}

// recursive is a value as ?recursive=true has it: lists are JSON lists.
func recursive(name, value string) any {
	if name == "aliases" || name == "scopes" {
		return strings.Fields(value)
	}
	return value
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/text")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte(text))
}

// workload is who asks the metadata server.
func (c *Cloud) workload(m *Metadata) (principal, *apiError) {
	c.mu.RLock()
	pr := c.projects[m.Project]
	var who principal
	var refusal *apiError
	a := c.findAccount(m.ServiceAccount, pr.universe)
	if m.KubernetesServiceAccount == "" && a != nil {
		who = c.accountOf(a)
	}
	c.mu.RUnlock()
	if m.KubernetesServiceAccount != "" {
		token := oidc.Token{Subject: "system:serviceaccount:" + strings.Replace(m.KubernetesServiceAccount, "/", ":", 1)}
		who, refusal = kubernetesPrincipal(token, pr.number, kubernetesPool(pr.id, pr.universe), clusterURL(pr.universe, pr.id, m.ClusterLocation, m.ClusterName))
		who.universe = pr.universe
		if refusal == nil && m.ServiceAccount != "" {
			who, refusal = c.impersonate(who, []string{m.ServiceAccount})
		}
	}
	if refusal == nil && who.anonymous() {
		refusal = notFound().because("the service account was deleted")
	}
	return who, refusal
}

// refuseToken words IAM's refusal as the GKE metadata server does.
func refuseToken(w http.ResponseWriter, call *journal.Call, e *apiError) {
	e.note(call)
	text := "Unable to generate access token; IAM returned " + strconv.Itoa(e.status) + " " + http.StatusText(e.status) + ": " + e.message + "\n"
	if e.status == http.StatusForbidden {
		text += "This error could be caused by a missing IAM policy binding on the target IAM service account.\n" +
			"For more information, refer to the Workload Identity documentation:\n" +
			"\thttps://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity#authenticating_to\n\n"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(e.status)
	_, _ = w.Write([]byte(text))
}

func (c *Cloud) serveMetadataToken(w http.ResponseWriter, r *http.Request, m *Metadata, call *journal.Call, now time.Time) {
	who, refusal := c.workload(m)
	if refusal != nil {
		refuseToken(w, call, refusal)
		return
	}
	call.Principal, call.Role = who.name(), m.ServiceAccount
	scopes := m.Scopes
	if asked := r.URL.Query().Get("scopes"); asked != "" && m.ClusterName != "" { // on GKE a caller may choose
		scopes = strings.Split(asked, ",")
	}
	prefix := prefixAccount
	if who.federated() {
		prefix = prefixFederated
	}
	token := c.issue(prefix, accessToken{who: who, scopes: scopes, expires: now.Add(maxTokenLife)}, now)
	writeJSON(w, http.StatusOK, "application/json", struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"` // seconds
		TokenType   string `json:"token_type"`
	}{token, int(maxTokenLife/time.Second) - 1, "Bearer"})
}

// serveIdentityToken answers with a token of Google's own issuer. A Kubernetes ServiceAccount without a service account has none.
// Source: Compute Engine, "Verify VM identity".
func (c *Cloud) serveIdentityToken(w http.ResponseWriter, r *http.Request, m *Metadata, call *journal.Call, now time.Time) {
	who, refusal := c.workload(m)
	audience := r.URL.Query().Get("audience")
	switch {
	case refusal != nil:
		refuseToken(w, call, refusal)
		return
	case who.federated():
		refuseToken(w, call, notFound().because("a federated identity has no identity tokens"))
		return
	case audience == "":
		page{}.refuse(w, call, refused(http.StatusBadRequest, "BadRequest", "non-empty audience parameter required"))
		return
	}
	call.Principal, call.Audience = who.name(), audience
	claims := oidc.Claims{
		"aud": audience, "sub": who.uniqueID, "azp": who.uniqueID,
		"iat": now.Unix(), "nbf": nil, "exp": now.Add(maxTokenLife).Unix(),
	}
	if r.URL.Query().Get("format") == "full" || m.ClusterName != "" {
		claims["email"], claims["email_verified"] = who.email, true
	}
	google, err := c.google()
	var token string
	if err == nil {
		token, err = google.Mint(claims)
	}
	if err != nil {
		page{}.refuse(w, call, page{}.faulted(fault.InternalFailure).because(err.Error()))
		return
	}
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte(token))
}

// serveAccounts serves the documents of Google's own issuer. Its keys are below its own name here, not at www.googleapis.com.
func (c *Cloud) serveAccounts(w http.ResponseWriter, r *http.Request, call *journal.Call) {
	call.Operation = "GetDocument"
	if _, ok := c.begin(r.Context(), w, page{}, call); !ok {
		return
	}
	google, err := c.google()
	if err != nil {
		page{}.refuse(w, call, page{}.faulted(fault.InternalFailure).because(err.Error()))
		return
	}
	call.Resource = (&url.URL{Path: r.URL.Path}).EscapedPath()
	google.ServeHTTP(w, r)
}
