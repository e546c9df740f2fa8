package oci

import (
	"net/http"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// Words are the error texts of a cloud's registries.
type Words struct{ Failure, Unavailable, Throttled string }

// VersionHeader is a header by which clients recognize a registry. Version is its value.
const (
	VersionHeader = "Docker-Distribution-Api-Version"
	Version       = "registry/2.0"
)

// Protocol returns a [service.Protocol] with the error format of OCI registries. The given function
// must encode the body of a refusal as JSON. A refusal's Detail becomes the error's member
// "detail". Source: OCI Distribution Specification v1.1, "Error Codes".
func Protocol(words Words, write func(r *service.Request, status int, body any) service.Answer) service.Protocol {
	type one struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Detail  any    `json:"detail,omitempty"`
	}
	return service.Protocol{
		Refuse: func(r *service.Request, e *service.Refusal) service.Answer {
			r.Reply.Set(VersionHeader, Version)
			return write(r, e.Status, map[string][]one{"errors": {{e.Code, e.Message, e.Detail}}})
		},
		Failure:     service.Refuse(http.StatusInternalServerError, "UNKNOWN", words.Failure),
		Unavailable: service.Refuse(http.StatusServiceUnavailable, "UNAVAILABLE", words.Unavailable),
		Throttled:   service.Refuse(http.StatusTooManyRequests, "TOOMANYREQUESTS", words.Throttled),
		Broken: service.Whole(http.StatusOK, "application/vnd.oci.image.manifest.v1+json",
			[]byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.im`)),
	}
}
