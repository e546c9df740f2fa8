package azure

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/cloudtest/plane"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// Versions of the storage API in x-ms-version, which are compared as text. Source: Microsoft Learn,
// "Authorize with Microsoft Entra ID" of Azure Storage.
const (
	versionBearer    = "2017-11-09" // the first that accepts access tokens
	versionChallenge = "2019-12-12" // the first that answers 401 with the address of Entra ID
)

// versionPattern matches an API version, which is a date.
var versionPattern = regexp.MustCompile(`\A20[0-9]{2}-[01][0-9]-[0-3][0-9]\z`)

// rootContainer holds the blobs whose path names no container.
const rootContainer = "$root"

// blobRequest says what a request to blob storage does, and which permission it needs.
type blobRequest struct {
	operation  string
	container  string // empty for the account as a whole
	permission string
}

// readBlobRequest maps a request to a permission. It refuses operations that the local cloud does
// not have. Among them are:
//   - batches, which contain further requests
//   - copies, whose sources are not checked
//   - access policies, tags and delegation keys, which need other permissions
//
// Source: Microsoft Learn, "Blob Storage REST API".
func readBlobRequest(r *http.Request) (blobRequest, *service.Refusal) {
	unsupported := blobRefusal(http.StatusMethodNotAllowed, "UnsupportedHttpVerb").Because("the local cloud does not have the operation")
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
	case blob == "": // a path of one part without restype names a blob in the root container
		container = rootContainer
	}
	if plane.Has(r.Header, "X-Ms-Copy-Source") {
		return blobRequest{}, blobRefusal(http.StatusForbidden, "CannotVerifyCopySource").Because("the local cloud does not copy blobs")
	}
	if !read && q.Has("versionid") {
		return blobRequest{}, unsupported // deleting a version needs more than permitWrite
	}
	return withPermission(blobOperation(r.Method, comp, read), container, read, unsupported)
}

// blobParameters returns the query parameters that the local cloud supports. Source: Microsoft
// Learn, "Blob Storage REST API".
func blobParameters() []string {
	return []string{
		"comp", "restype", "timeout", "prefix", "delimiter", "marker", "maxresults",
		"include", "showonly", "startfrom", "snapshot", "prevsnapshot", "versionid",
		"blockid", "blocklisttype", "api-version",
	}
}

// readBlobQuery accepts only known parameters in lower case, each given once. Azure ignores the
// case of parameters, and a data plane may ignore it too. So a parameter in upper case could select
// an operation that was not authorized.
func readBlobQuery(raw string) (url.Values, *service.Refusal) {
	q, err := readValues(raw)
	if err != nil {
		return nil, blobRefusal(http.StatusBadRequest, "InvalidQueryParameterValue").Because("the query cannot be read in one way only")
	}
	for name := range q {
		// Accept all parameters if the query has a signature, so that blobCaller can refuse the
		// signature.
		if !q.Has("sig") && !slices.Contains(blobParameters(), name) {
			return nil, blobRefusal(http.StatusBadRequest, "UnsupportedQueryParameter").
				Because("the local cloud does not have the query parameter " + printable(name))
		}
	}
	return q, nil
}

func withPermission(operation, container string, read bool, unsupported *service.Refusal) (blobRequest, *service.Refusal) {
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
	case method == http.MethodPut && slices.Contains([]string{
		"", "metadata", "properties", "block", "blocklist", "appendblock", "page", "lease", "snapshot", "tier",
	}, comp):
		return "WriteBlob"
	case method == http.MethodDelete && comp == "":
		return "DeleteBlob"
	}
	return ""
}

// readBlobPath splits /<container>/<blob>. A blob's name may contain escaped slashes. A path that
// could lead out of the container is refused.
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
	// Without restype=container, a path of one part is the name of a blob in the root container.
	// Such a name must not contain a slash, not even an escaped one.
	if blob == "" && r.URL.Query().Get("restype") != "container" {
		return container, "", !strings.Contains(strings.TrimPrefix(r.URL.Path, "/"), "/")
	}
	return container, blob, isContainer(container)
}

// readBlob implements [service.Service] for a storage account's blob endpoint.
func (c *Cloud) readBlob(r *service.Request, account *storageAccount) (service.Protocol, service.Handler) {
	req, unknown := readBlobRequest(r.Request)
	r.Call.Operation, r.Call.Resource = req.operation, account.Host
	if unknown == nil {
		r.Call.Resource += r.URL.Path
	}
	return blobProtocol(), func(r *service.Request) (service.Answer, *service.Refusal) {
		r.Reply.Set("X-Ms-Version", r.Header.Get("X-Ms-Version"))
		token, no := c.blobCaller(r, account)
		if no != nil {
			return nil, no
		}
		r.Call.Principal = principalName(token.tenant, token.app)
		if unknown != nil {
			return nil, unknown
		}
		if !account.allows(token.app.clientID, req.container, req.permission) {
			return nil, blobRefusal(http.StatusForbidden, "AuthorizationPermissionMismatch").
				Because("no role assignment lets " + token.app.clientID + " " + req.permission + " there")
		}
		to := c.blobData.Get(account.StorageAccount)
		if to != nil {
			r.Reply.Del("X-Ms-Version") // the data plane sets this header itself
		}
		return r.Forward(to, plane.Request(r.Request), nil)
	}
}

// blobCaller verifies the access token of a request to a storage account.
func (c *Cloud) blobCaller(r *service.Request, account *storageAccount) (accessToken, *service.Refusal) {
	version := r.Header.Get("X-Ms-Version")
	if version != "" && !versionPattern.MatchString(version) {
		return accessToken{}, blobRefusal(http.StatusBadRequest, "InvalidHeaderValue").Because("x-ms-version is not a version")
	}
	raw, isBearer := wire.Bearer(r.Request)
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case r.URL.Query().Has("sig"):
		return accessToken{}, blobRefusal(http.StatusForbidden, "KeyBasedAuthenticationNotPermitted").
			Because("the request has a shared access signature")
	case scheme == "SharedKey" || scheme == "SharedKeyLite":
		return accessToken{}, blobRefusal(http.StatusForbidden, "KeyBasedAuthenticationNotPermitted").
			Because("the request is signed with an account key")
	case scheme == "" && version < versionChallenge:
		return accessToken{}, blobRefusal(http.StatusConflict, "PublicAccessNotPermitted")
	case scheme == "":
		authorizeAt(r, account)
		return accessToken{}, blobRefusal(http.StatusUnauthorized, "NoAuthenticationInformation")
	case !isBearer:
		return accessToken{}, notAuthenticated(r, account, version, "Authentication scheme "+printable(scheme)+" is not supported.")
	case version < versionBearer:
		return accessToken{}, notAuthenticated(r, account, version, "Authentication scheme Bearer is not supported in this version.")
	}
	token, err := c.readAccessToken(r, raw)
	detail := ""
	switch audience := strings.TrimSuffix(token.audience, "/"); {
	case errors.Is(err, oidc.ErrExpired):
		detail = "Lifetime validation failed. The token is expired."
	case errors.Is(err, oidc.ErrNotYetValid):
		detail = "Lifetime validation failed. The token is not yet valid."
	case errors.Is(err, errPrincipal):
		return accessToken{}, blobRefusal(http.StatusForbidden, "AuthorizationPermissionMismatch").Because(err.Error())
	case errors.Is(err, oidc.ErrIssuer), err == nil && token.tenant != account.tenant:
		detail = "Issuer validation failed. Issuer did not match."
	case err != nil:
		detail = "Signature validation failed. Signature verification failed."
	case audience != resourceStorage && audience != "https://"+account.Host:
		detail = "Audience validation failed. Audience did not match."
	default:
		return token, nil
	}
	no := notAuthenticated(r, account, version, detail)
	if err != nil {
		no.Reason += " " + err.Error()
	}
	return accessToken{}, no
}

// notAuthenticated returns the refusal of a request whose Authorization header is not accepted.
func notAuthenticated(r *service.Request, account *storageAccount, version, detail string) *service.Refusal {
	no := blobRefusal(http.StatusForbidden, "AuthenticationFailed")
	if version >= versionChallenge {
		authorizeAt(r, account)
		no = blobRefusal(http.StatusUnauthorized, "InvalidAuthenticationInfo")
	}
	no.Detail, no.Reason = detail, detail
	return no
}

// authorizeAt sets the header Www-Authenticate, which says where clients get a token. Source:
// Microsoft Learn, "Authorize with Microsoft Entra ID" of Azure Storage, bearer challenge.
func authorizeAt(r *service.Request, account *storageAccount) {
	r.Reply.Set("Www-Authenticate", "Bearer authorization_uri=https://"+account.tenant.environment.authority()+"/"+account.tenant.id+
		"/oauth2/authorize resource_id="+resourceStorage)
}
