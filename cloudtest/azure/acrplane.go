package azure

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/oci"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// dataLinkLife is how long a link to a data endpoint works. Source: the links that registries give out, which end after twenty minutes.
const dataLinkLife = 20 * time.Minute

// serveRegistry is a registry's OCI API: behind an access token that allows the repository and the action.
func (c *Cloud) serveRegistry(w http.ResponseWriter, r *http.Request, reg *registry, call *journal.Call) {
	req, understood := readRegistryRequest(r)
	if understood {
		call.Operation, call.Resource = req.operation, reg.Host
		if req.repository != "" {
			call.Resource += "/" + req.repository
		}
	}
	p := registryProtocol{}
	now, ok := c.begin(r.Context(), w, p, call)
	if !ok {
		return
	}
	ask := needs(req)
	raw, ok := wire.Bearer(r)
	if !ok {
		challenge(w, reg, ask, "")
		p.refuse(w, call, unauthorized(ask).because("no bearer token was sent"))
		return
	}
	who, err := c.readRegistryToken(reg, raw, now)
	if err == nil && who.grant != grantAccess {
		err = errRegistryToken
	}
	if err != nil {
		challenge(w, reg, ask, "invalid_token")
		p.refuse(w, call, unauthorized(ask).because(err.Error()))
		return
	}
	call.Principal = principalName(reg.tenant, who.app)
	switch {
	case !understood:
		p.refuse(w, call, &refusal{status: http.StatusMethodNotAllowed, code: "UNSUPPORTED", message: "The operation is unsupported."})
	case req.action == "": // ping
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		writeJSON(w, http.StatusOK, struct{}{})
	case !covers(who.access, ask):
		challenge(w, reg, ask, "insufficient_scope")
		p.refuse(w, call, unauthorized(ask).because("the access token does not allow it"))
	default:
		c.forwardRegistry(w, r, reg, req, call, now)
	}
}

// covers says whether access has all that is asked for.
func covers(all, ask []access) bool {
	for _, a := range ask {
		for _, action := range a.Actions {
			mayPull := action == actionReadMetadata && allowed(all, a.Type, a.Name, actionPull) // and so may see what there is to pull
			if !mayPull && !allowed(all, a.Type, a.Name, action) {
				return false
			}
		}
	}
	return true
}

// forwardRegistry passes an allowed request to the data plane, or for a blob sends the client to the data endpoint.
func (c *Cloud) forwardRegistry(w http.ResponseWriter, r *http.Request, reg *registry, req registryRequest, call *journal.Call, now time.Time) {
	plane := c.planeOf(reg)
	if plane == nil {
		registryProtocol{}.refuse(w, call, registryProtocol{}.faulted(fault.Unavailable).because("no data plane was handed in for this registry"))
		return
	}
	if req.operation == opPullBlob && len(reg.regions) > 0 && exists(plane, r) {
		w.Header().Set("Location", c.dataLink(reg, r.URL.Path, now))
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	oci.Forward(w, r, plane)
}

func (c *Cloud) planeOf(reg *registry) http.Handler {
	c.mu.RLock()
	plane := c.registryPlane
	c.mu.RUnlock()
	if plane == nil {
		return nil
	}
	return plane(reg.Registry)
}

// exists asks a data plane whether it has what a request is to read.
func exists(plane http.Handler, r *http.Request) bool {
	head := r.Clone(r.Context())
	head.Method = http.MethodHead
	head.Body = http.NoBody
	var status statusWriter
	oci.Forward(&status, head, plane)
	return status.status == http.StatusOK || status.status == 0
}

// statusWriter keeps an answer's status and drops the rest.
type statusWriter struct {
	header http.Header
	status int
}

// Header is written to and not read.
func (s *statusWriter) Header() http.Header {
	if s.header == nil {
		s.header = http.Header{}
	}
	return s.header
}

// Write drops the body.
func (*statusWriter) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader keeps the first status.
func (s *statusWriter) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
}

// dataLink makes a link to a blob at the registry's first data endpoint. Its signature is all that its bearer needs.
func (c *Cloud) dataLink(reg *registry, path string, now time.Time) string {
	host := reg.dataHost(reg.regions[0])
	end := strconv.FormatInt(now.Add(dataLinkLife).Unix(), 10)
	return (&url.URL{Scheme: "https", Host: host, Path: path, RawQuery: url.Values{"se": {end}, "sig": {c.signLink(host, path, end)}}.Encode()}).String()
}

func (c *Cloud) signLink(host, path, end string) string {
	mac := hmac.New(sha256.New, c.dataKey)
	_, _ = mac.Write([]byte(host + "\n" + path + "\n" + end))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// serveData is a dedicated data endpoint: blob storage that takes signed links and nothing else.
func (c *Cloud) serveData(w http.ResponseWriter, r *http.Request, reg *registry, call *journal.Call) {
	if req, understood := readRegistryRequest(r); understood && req.operation == opPullBlob {
		call.Operation, call.Resource = req.operation, reg.Host+"/"+req.repository
	}
	p := blobProtocol{}
	now, ok := c.begin(r.Context(), w, p, call)
	if !ok {
		return
	}
	q := r.URL.Query()
	end, err := strconv.ParseInt(q.Get("se"), 10, 64)
	signed := hmac.Equal([]byte(q.Get("sig")), []byte(c.signLink(call.Host, r.URL.Path, q.Get("se"))))
	switch {
	case r.Header.Get("Authorization") != "":
		p.refuse(w, call, blobRefusal(http.StatusBadRequest, "InvalidAuthenticationInfo").because("a link and an Authorization header were sent: the client's token was not for here"))
	case call.Operation == "" || err != nil || !signed:
		p.refuse(w, call, blobRefusal(http.StatusForbidden, "AuthenticationFailed").because("the link is not one of the registry's"))
	case !now.Before(time.Unix(end, 0)):
		p.refuse(w, call, blobRefusal(http.StatusForbidden, "AuthenticationFailed").because("the link has ended"))
	default:
		plane := c.planeOf(reg)
		if plane == nil {
			p.refuse(w, call, p.faulted(fault.Unavailable).because("no data plane was handed in for this registry"))
			return
		}
		out := r.Clone(r.Context())
		out.URL.RawQuery = "" // the signature is not the plane's business either
		out.RequestURI = out.URL.RequestURI()
		oci.Forward(w, out, plane)
	}
}
