package azure

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/plane"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Versions of the storage API in x-ms-version, which order as text. Source: Microsoft Learn, "Authorize with Microsoft Entra ID" of Azure Storage.
const (
	versionBearer    = "2017-11-09" // the first that takes access tokens
	versionChallenge = "2019-12-12" // the first that answers with 401 and says where to get a token
)

// versionPattern is the form of all versions of APIs: a day.
var versionPattern = regexp.MustCompile(`\A20[0-9]{2}-[01][0-9]-[0-3][0-9]\z`)

// rootContainer holds the blobs whose path names no container.
const rootContainer = "$root"

// blobRequest is what a request asks of blob storage.
type blobRequest struct {
	operation  string
	container  string // empty for the account as a whole
	permission string
}

// readBlobRequest maps a request to a permission. Source: Microsoft Learn, "Blob Storage REST API". What it does not know is not allowed: batches, which
// hold requests of their own; copies, which read where nobody was asked; access policies, tags and delegation keys, which need other permissions.
func readBlobRequest(r *http.Request) (blobRequest, *refusal) {
	unsupported := blobRefusal(http.StatusMethodNotAllowed, "UnsupportedHttpVerb").because("the local cloud does not have the operation")
	container, blob, ok := readBlobPath(r)
	if !ok {
		return blobRequest{}, blobRefusal(http.StatusBadRequest, "InvalidUri")
	}
	q, no := readBlobQuery(r.URL.RawQuery)
	if no != nil {
		return blobRequest{}, no
	}
	comp, restype := q.Get("comp"), q.Get("restype")
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case container == "":
		if read && comp == "list" && restype == "" {
			return blobRequest{operation: "ListContainers", permission: permitRead}, nil
		}
		return blobRequest{}, unsupported
	case blob == "" && restype == "container":
		op := containerOperation(r.Method, comp, read)
		return withPermission(op, container, read, unsupported)
	case restype != "":
		return blobRequest{}, unsupported
	case blob == "": // a path of one part without restype is a blob in the root container
		container = rootContainer
	}
	if plane.Has(r.Header, "X-Ms-Copy-Source") {
		return blobRequest{}, blobRefusal(http.StatusForbidden, "CannotVerifyCopySource").because("the local cloud does not copy blobs")
	}
	if !read && q.Has("versionid") {
		return blobRequest{}, unsupported // versions are deleted with a permission of their own
	}
	return withPermission(blobOperation(r.Method, comp, read), container, read, unsupported)
}

// blobParameters are the query parameters of the operations that the local cloud has. Source: Microsoft Learn, "Blob Storage REST API".
func blobParameters() []string {
	return []string{
		"comp", "restype", "timeout", "prefix", "delimiter", "marker", "maxresults", "include", "showonly", "startfrom", "snapshot", "prevsnapshot", "versionid",
		"blockid", "blocklisttype", "api-version",
	}
}

// readBlobQuery reads parameters that have one reading only: each is known, in small letters, and stands once. Azure does not mind how they are written;
// a data plane that does not either must not find an operation that was not judged.
func readBlobQuery(raw string) (url.Values, *refusal) {
	q, err := readValues(raw)
	if err != nil {
		return nil, blobRefusal(http.StatusBadRequest, "InvalidQueryParameterValue").because("the query cannot be read in one way only")
	}
	for name := range q {
		if !q.Has("sig") && !slices.Contains(blobParameters(), name) { // one with a signature in its query is refused for that
			return nil, blobRefusal(http.StatusBadRequest, "UnsupportedQueryParameter").because("the local cloud does not have the query parameter " + printable(name))
		}
	}
	return q, nil
}

func withPermission(operation, container string, read bool, unsupported *refusal) (blobRequest, *refusal) {
	if operation == "" {
		return blobRequest{}, unsupported
	}
	permission := permitWrite
	if read {
		permission = permitRead
	}
	return blobRequest{operation: operation, container: container, permission: permission}, nil
}

func containerOperation(method, comp string, read bool) string {
	switch {
	case read && comp == "list":
		return "ListBlobs"
	case read && (comp == "" || comp == "metadata"):
		return "ReadContainer"
	case method == http.MethodPut && (comp == "" || comp == "metadata"):
		return "WriteContainer"
	case method == http.MethodDelete && comp == "":
		return "DeleteContainer"
	}
	return ""
}

func blobOperation(method, comp string, read bool) string {
	switch {
	case read && slices.Contains([]string{"", "metadata", "blocklist", "pagelist"}, comp):
		return "ReadBlob"
	case method == http.MethodPut && slices.Contains([]string{"", "metadata", "properties", "block", "blocklist", "appendblock", "page", "lease", "snapshot", "tier"}, comp):
		return "WriteBlob"
	case method == http.MethodDelete && comp == "":
		return "DeleteBlob"
	}
	return ""
}

// readBlobPath splits /<container>/<blob>. A blob's name may hold escaped slashes; a path that could lead out of the container is refused.
func readBlobPath(r *http.Request) (container, blob string, ok bool) {
	for part := range strings.SplitSeq(r.URL.Path, "/") {
		if part == "." || part == ".." || strings.ContainsAny(part, "\\\x00\r\n") {
			return "", "", false
		}
	}
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	container, blob, _ = strings.Cut(path, "/")
	if container == "" {
		return "", "", path == ""
	}
	if blob == "" && r.URL.Query().Get("restype") != "container" { // a blob of the root container, whose names have no slash
		return container, "", !strings.Contains(strings.TrimPrefix(r.URL.Path, "/"), "/")
	}
	return container, blob, isContainer(container)
}

func (c *Cloud) serveBlob(w http.ResponseWriter, r *http.Request, account *storageAccount, call *journal.Call) {
	req, unknown := readBlobRequest(r)
	call.Operation = req.operation
	call.Resource = account.Host
	if unknown == nil {
		call.Resource += r.URL.Path
	}
	p := blobProtocol{}
	now, ok := c.begin(r.Context(), w, p, call)
	if !ok {
		return
	}
	w.Header().Set("X-Ms-Version", r.Header.Get("X-Ms-Version"))
	token, no := c.blobCaller(w, r, account, call, now)
	if no == nil {
		call.Principal = principalName(token.tenant, token.app)
		no = unknown
	}
	if no == nil && !account.allows(token.app.clientID, req.container, req.permission) {
		no = blobRefusal(http.StatusForbidden, "AuthorizationPermissionMismatch").because("no role assignment lets " + token.app.clientID + " " + req.permission + " there")
	}
	if no != nil {
		p.refuse(w, call, no)
		return
	}
	c.mu.RLock()
	handlers := c.blobPlane
	c.mu.RUnlock()
	var h http.Handler
	if handlers != nil {
		h = handlers(account.StorageAccount)
	}
	if h == nil {
		p.refuse(w, call, p.faulted(fault.Unavailable).because("no data plane was handed in for this account"))
		return
	}
	w.Header().Del("X-Ms-Version") // the plane's to say
	h.ServeHTTP(w, plane.Request(r))
}

// blobCaller proves the caller of a storage account.
func (c *Cloud) blobCaller(w http.ResponseWriter, r *http.Request, account *storageAccount, call *journal.Call, now time.Time) (accessToken, *refusal) {
	version := r.Header.Get("X-Ms-Version")
	if version != "" && !versionPattern.MatchString(version) {
		return accessToken{}, blobRefusal(http.StatusBadRequest, "InvalidHeaderValue").because("x-ms-version is not a version")
	}
	raw, isBearer := wire.Bearer(r)
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case r.URL.Query().Has("sig"):
		return accessToken{}, blobRefusal(http.StatusForbidden, "KeyBasedAuthenticationNotPermitted").because("the request has a shared access signature")
	case scheme == "SharedKey" || scheme == "SharedKeyLite":
		return accessToken{}, blobRefusal(http.StatusForbidden, "KeyBasedAuthenticationNotPermitted").because("the request is signed with an account key")
	case scheme == "" && version < versionChallenge:
		return accessToken{}, blobRefusal(http.StatusConflict, "PublicAccessNotPermitted")
	case scheme == "":
		authorizeAt(w, account)
		return accessToken{}, blobRefusal(http.StatusUnauthorized, "NoAuthenticationInformation")
	case !isBearer:
		return accessToken{}, notAuthenticated(w, account, version, "Authentication scheme "+printable(scheme)+" is not supported.")
	case version < versionBearer:
		return accessToken{}, notAuthenticated(w, account, version, "Authentication scheme Bearer is not supported in this version.")
	}
	if claimed, err := oidc.Read(raw); err == nil {
		call.Issuer, call.Subject, call.Audience = claimed.Issuer, claimed.Subject, strings.Join(claimed.Audience, ",")
	}
	token, err := c.readAccessToken(raw, now)
	detail := ""
	switch audience := strings.TrimSuffix(token.audience, "/"); {
	case errors.Is(err, oidc.ErrExpired):
		detail = "Lifetime validation failed. The token is expired."
	case errors.Is(err, oidc.ErrNotYetValid):
		detail = "Lifetime validation failed. The token is not yet valid."
	case errors.Is(err, errPrincipal):
		return accessToken{}, blobRefusal(http.StatusForbidden, "AuthorizationPermissionMismatch").because(err.Error())
	case errors.Is(err, oidc.ErrIssuer), err == nil && token.tenant != account.tenant:
		detail = "Issuer validation failed. Issuer did not match."
	case err != nil:
		detail = "Signature validation failed. Signature verification failed."
	case audience != resourceStorage && audience != "https://"+account.Host:
		detail = "Audience validation failed. Audience did not match."
	default:
		return token, nil
	}
	no := notAuthenticated(w, account, version, detail)
	if err != nil {
		no.reason += " " + err.Error()
	}
	return accessToken{}, no
}

// notAuthenticated is the refusal of an Authorization header.
func notAuthenticated(w http.ResponseWriter, account *storageAccount, version, detail string) *refusal {
	no := blobRefusal(http.StatusForbidden, "AuthenticationFailed")
	if version >= versionChallenge {
		authorizeAt(w, account)
		no = blobRefusal(http.StatusUnauthorized, "InvalidAuthenticationInfo")
	}
	no.detail, no.reason = detail, detail
	return no
}

// authorizeAt says where there are tokens. Source: Microsoft Learn, "Authorize with Microsoft Entra ID" of Azure Storage, bearer challenge.
func authorizeAt(w http.ResponseWriter, account *storageAccount) {
	w.Header().Set("Www-Authenticate", "Bearer authorization_uri=https://"+account.tenant.environment.authority()+"/"+account.tenant.id+
		"/oauth2/authorize resource_id="+resourceStorage)
}
