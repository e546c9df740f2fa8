package azure

import (
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/oci"
	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/wire"
)

// authenticationRequired is the message of a registry to a caller without permission. Source:
// answers that users of Azure/acr made public.
const authenticationRequired = "authentication required, visit https://aka.ms/acr/authorization for more information."

// registryProtocol returns the error format of registries and their token service.
func registryProtocol() service.Protocol {
	p := oci.Protocol(oci.Words{
		Failure: "unknown error", Unavailable: "service unavailable", Throttled: "too many requests",
	}, writeRegistryJSON)
	p.Broken = service.Whole(http.StatusOK, jsonType, []byte(`{"refresh_token":"eyJ`))
	return p
}

func writeRegistryJSON(r *service.Request, status int, body any) service.Answer {
	r.Reply.Set("X-Ms-Correlation-Request-Id", wire.UUID())
	return writeJSON(status, body)
}

// wants describes one requested action in the JSON field "detail" of an error.
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

func unauthorized(all []access) *service.Refusal {
	e := service.Refuse(http.StatusUnauthorized, "UNAUTHORIZED", authenticationRequired)
	if len(all) > 0 {
		e.Detail = wanted(all)
	}
	return e
}

// challenge sets the header Www-Authenticate. The header names the registry's token service, and
// the scopes to request there. Source: RFC 6750 §3; Azure/acr, "AAD-OAuth.md".
func challenge(r *service.Request, reg *registry, ask []access, problem string) {
	value := `Bearer realm="https://` + reg.endpoint + `/oauth2/token",service="` + reg.endpoint + `"`
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
	r.Reply.Set("Www-Authenticate", value)
}

// needs returns the access that a request requires.
func needs(q registryRequest) []access {
	switch {
	case q.repository != "":
		return []access{{Type: "repository", Name: q.repository, Actions: []string{q.action}}}
	case q.action == actionCatalog:
		return []access{{Type: "registry", Name: "catalog", Actions: []string{actionCatalog}}}
	}
	return nil
}
