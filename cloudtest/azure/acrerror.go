package azure

import (
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// authenticationRequired is what registries say to whoever may not. Source: answers that users of Azure/acr made public.
const authenticationRequired = "authentication required, visit https://aka.ms/acr/authorization for more information."

// registryProtocol is how registries and their token service answer. Source: OCI Distribution Specification v1.1, "Error Codes".
type registryProtocol struct{}

type registryError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Detail  any    `json:"detail,omitempty"`
}

// wants is what was asked for, as the member detail names it.
type wants struct {
	Type   string
	Name   string
	Action string
}

func wanted(all []access) []wants {
	var out []wants
	for _, a := range all {
		for _, action := range a.Actions {
			out = append(out, wants{Type: a.Type, Name: a.Name, Action: action})
		}
	}
	return out
}

func unauthorized(all []access) *refusal {
	e := &refusal{status: http.StatusUnauthorized, code: "UNAUTHORIZED", message: authenticationRequired}
	if len(all) > 0 {
		e.detail = wanted(all)
	}
	return e
}

func (registryProtocol) refuse(w http.ResponseWriter, call *journal.Call, e *refusal) {
	e.note(call)
	w.Header().Set("X-Ms-Correlation-Request-Id", wire.UUID())
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	writeJSON(w, e.status, map[string][]registryError{"errors": {{e.code, e.message, e.detail}}})
}

func (registryProtocol) faulted(kind fault.Kind) *refusal {
	switch kind {
	case fault.Throttle:
		return &refusal{status: http.StatusTooManyRequests, code: "TOOMANYREQUESTS", message: "too many requests"}
	case fault.Unavailable:
		return &refusal{status: http.StatusServiceUnavailable, code: "UNAVAILABLE", message: "service unavailable"}
	default:
		return &refusal{status: http.StatusInternalServerError, code: "UNKNOWN", message: "unknown error"}
	}
}

func (registryProtocol) broken() (contentType, body string) {
	return "application/json; charset=utf-8", `{"refresh_token":"eyJ`
}

// challenge sends a client to the registry's token service, and says what to ask there. Source: RFC 6750 §3; Azure/acr, "AAD-OAuth.md".
func challenge(w http.ResponseWriter, r *registry, ask []access, problem string) {
	value := `Bearer realm="https://` + r.endpoint + `/oauth2/token",service="` + r.endpoint + `"`
	if len(ask) > 0 {
		scopes := make([]string, len(ask))
		for i, a := range ask {
			scopes[i] = a.Type + ":" + a.Name + ":" + strings.Join(a.Actions, ",")
		}
		value += `,scope="` + strings.Join(scopes, " ") + `"`
	}
	if problem != "" {
		value += `,error="` + problem + `"`
	}
	w.Header().Set("Www-Authenticate", value)
}

// needs is the access that a request asks for.
func needs(q registryRequest) []access {
	switch {
	case q.repository != "":
		return []access{{Type: "repository", Name: q.repository, Actions: []string{q.action}}}
	case q.action == actionCatalog:
		return []access{{Type: "registry", Name: "catalog", Actions: []string{actionCatalog}}}
	}
	return nil
}
