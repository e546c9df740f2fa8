package azure

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/oci"
	"github.com/lanyard-dev/lanyard/cloudtest/plane"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// dataLinkLife is how long a link to a data endpoint works. Source: the links that registries give
// out, which end after twenty minutes.
const dataLinkLife = 20 * time.Minute

// readRegistry implements [service.Service] for a registry's OCI API.
func (c *Cloud) readRegistry(r *service.Request, reg *registry) (service.Protocol, service.Handler) {
	req, understood := readRegistryRequest(r.Request)
	if understood {
		r.Call.Operation, r.Call.Resource = req.operation, reg.Host
		if req.repository != "" {
			r.Call.Resource += "/" + req.repository
		}
	}
	return registryProtocol(), func(r *service.Request) (service.Answer, *service.Refusal) {
		if no := c.authorizeRegistry(r, reg, req, understood); no != nil {
			return nil, no
		}
		if req.action == "" {
			r.Reply.Set(oci.VersionHeader, oci.Version)
			return writeJSON(http.StatusOK, struct{}{}), nil
		}
		return c.forwardRegistry(r, reg, req)
	}
}

// authorizeRegistry refuses a request unless its access token allows the action on the repository.
func (c *Cloud) authorizeRegistry(r *service.Request, reg *registry, req registryRequest, understood bool) *service.Refusal {
	ask := needs(req)
	raw, ok := wire.Bearer(r.Request)
	if !ok {
		challenge(r, reg, ask, "")
		return unauthorized(ask).Because("no bearer token was sent")
	}
	who, err := c.readRegistryToken(reg, raw, r.Now)
	if err == nil && who.grant != grantAccess {
		err = errRegistryToken
	}
	if err != nil {
		challenge(r, reg, ask, "invalid_token")
		return unauthorized(ask).Because(err.Error())
	}
	r.Call.Principal = principalName(reg.tenant, who.app)
	switch {
	case !understood:
		return service.Refuse(http.StatusMethodNotAllowed, "UNSUPPORTED", "The operation is unsupported.")
	case !covers(who.access, ask):
		challenge(r, reg, ask, "insufficient_scope")
		return unauthorized(ask).Because("the access token does not allow it")
	}
	return nil
}

// covers reports whether the access list "all" includes each action in the list "ask".
func covers(all, ask []access) bool {
	for _, a := range ask {
		for _, action := range a.Actions {
			// Permission to pull includes permission to read metadata.
			mayPull := action == actionReadMetadata && allowed(all, a.Type, a.Name, actionPull)
			if !mayPull && !allowed(all, a.Type, a.Name, action) {
				return false
			}
		}
	}
	return true
}

// forwardRegistry sends an allowed request to the data plane. For a blob, it redirects the client
// to the data endpoint, if the registry has one.
func (c *Cloud) forwardRegistry(r *service.Request, reg *registry, req registryRequest) (service.Answer, *service.Refusal) {
	to := c.registryData.Get(reg.Registry)
	if req.operation == opPullBlob && len(reg.regions) > 0 && to != nil && exists(to, r.Request) {
		r.Reply.Set("Location", c.dataLink(reg, r.URL.Path, r.Now))
		return service.Empty(http.StatusTemporaryRedirect), nil
	}
	return r.Forward(to, oci.Forwarded(r.Request), nil)
}

// exists reports whether a data plane has the content that a request asks for. It sends a HEAD
// request to the data plane.
func exists(to http.Handler, r *http.Request) bool {
	head := r.Clone(r.Context())
	head.Method = http.MethodHead
	head.Body = http.NoBody
	return plane.Ask(to, oci.Forwarded(head)).Status == http.StatusOK
}

// dataLink returns a link to a blob at the registry's first data endpoint. The signature in the
// link is the only credential that a client needs.
func (c *Cloud) dataLink(reg *registry, path string, now time.Time) string {
	host := reg.dataHost(reg.regions[0])
	end := strconv.FormatInt(now.Add(dataLinkLife).Unix(), 10)
	return (&url.URL{
		Scheme: "https", Host: host, Path: path, RawQuery: url.Values{"se": {end}, "sig": {c.signLink(host, path, end)}}.Encode(),
	}).String()
}

func (c *Cloud) signLink(host, path, end string) string {
	mac := hmac.New(sha256.New, c.dataKey)
	_, _ = mac.Write([]byte(host + "\n" + path + "\n" + end))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// readData implements [service.Service] for a dedicated data endpoint: blob storage that accepts
// only signed links.
func (c *Cloud) readData(r *service.Request, reg *registry) (service.Protocol, service.Handler) {
	if req, understood := readRegistryRequest(r.Request); understood && req.operation == opPullBlob {
		r.Call.Operation, r.Call.Resource = req.operation, reg.Host+"/"+req.repository
	}
	return blobProtocol(), func(r *service.Request) (service.Answer, *service.Refusal) {
		q := r.URL.Query()
		end, err := strconv.ParseInt(q.Get("se"), 10, 64)
		signed := hmac.Equal([]byte(q.Get("sig")), []byte(c.signLink(r.Call.Host, r.URL.Path, q.Get("se"))))
		switch {
		case r.Header.Get("Authorization") != "":
			return nil, blobRefusal(http.StatusBadRequest, "InvalidAuthenticationInfo").
				Because("a link and an Authorization header were sent: the client's token was not for here")
		case r.Call.Operation == "" || err != nil || !signed:
			return nil, blobRefusal(http.StatusForbidden, "AuthenticationFailed").Because("the link is not one of the registry's")
		case !r.Now.Before(time.Unix(end, 0)):
			return nil, blobRefusal(http.StatusForbidden, "AuthenticationFailed").Because("the link has ended")
		}
		out := oci.Forwarded(r.Request)
		out.URL.RawQuery = "" // the data plane must not see the signature
		out.RequestURI = out.URL.RequestURI()
		return r.Forward(c.registryData.Get(reg.Registry), out, nil)
	}
}
