package gcp

import (
	"cmp"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// managementMethod is a method of an API that manages projects.
type managementMethod struct {
	name string // the method's name in the journal
	api  string // the API's full name; google.rpc.ErrorInfo calls the method <api>.<name>
	verb string // HTTP method
	path string // below /v1/; each "*" matches one name
	// query lists the method's parameters, except for those that all methods have.
	query []string
	do    func(*Cloud, *managementCall) (any, *service.Refusal)
}

// managementCall is a call of a [managementMethod] by an authenticated caller.
type managementCall struct {
	*service.Request

	who   principal
	names []string // the parts of the path that the asterisks match
	query url.Values
	body  []byte
}

// readManagement implements [service.Service] for an API that has the given methods. The caller
// must send an access token, and must have the permission that the called method requires. The
// token's scopes must include cloud-platform or one of the given scopes.
func (c *Cloud) readManagement(
	r *service.Request, ep endpoint, methods []managementMethod, scopes ...string,
) (service.Protocol, service.Handler) {
	protocol := rpc()
	protocol.Broken = service.Whole(http.StatusOK, jsonType, []byte("{\n  \"name\": \"projects/"))
	for _, m := range methods {
		names, ok := matchPath(m.path, r.URL.Path)
		if !ok || m.verb != r.Method {
			continue
		}
		_, custom, _ := strings.Cut(m.path, ":")
		r.Call.Operation, r.Call.Resource = m.name, strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/v1/"), ":"+custom)
		body, unread := readBody(r)
		if unread != nil {
			return protocol, unread.Handle
		}
		return protocol, func(r *service.Request) (service.Answer, *service.Refusal) {
			who, refusal := c.authenticate(r, ep.universe, m.api+"."+m.name, append(scopes, scopeCloudPlatform)...)
			r.Call.Principal = who.name()
			if refusal != nil {
				return nil, refusal
			}
			if refusal := c.useProject(r, who); refusal != nil {
				return nil, refusal
			}
			query, refusal := readQuery(r.URL.RawQuery, m.query)
			if refusal != nil {
				return nil, refusal
			}
			answer, refusal := m.do(c, &managementCall{Request: r, who: who, names: names, query: query, body: body})
			if refusal != nil {
				return nil, refusal
			}
			return writeJSON(jsonType, http.StatusOK, answer), nil
		}
	}
	return page(), notFound().Handle
}

// useProject checks that the caller may use the project whose quota it wants to use. A client names
// the project in the header X-Goog-User-Project. Source: Google Cloud APIs, "System parameters".
func (c *Cloud) useProject(r *service.Request, who principal) *service.Refusal {
	name := r.Header.Get("X-Goog-User-Project")
	c.mu.RLock()
	defer c.mu.RUnlock()
	if p := c.findProject(name, who.universe); name == "" || (p != nil && c.allowed(who, permServiceUse, p.id, nil)) {
		return nil
	}
	return service.Refuse(http.StatusForbidden, codeDenied, "Caller does not have required permission to use project "+name+
		". Grant the caller the roles/serviceusage.serviceUsageConsumer role, or a custom role with the serviceusage.services.use permission, "+
		"by visiting https://console.developers.google.com/iam-admin/iam/project?project="+url.QueryEscape(name)+
		" and then retry. Propagation of the new permission may take a few minutes.").
		With(info(infoProject, "consumer", "projects/"+name, "service", r.Call.Host)).
		Because("no binding on project " + name + " gives " + permServiceUse + " to " + who.name())
}

// matchPath returns the parts of a path at the positions where the pattern has "*".
func matchPath(pattern, path string) (names []string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v1/")
	for part := range strings.SplitSeq(pattern, "/") {
		segment, after, _ := strings.Cut(rest, "/")
		verb, named := strings.CutPrefix(part, "*")
		switch {
		case named && strings.HasSuffix(segment, verb) && len(segment) > len(verb):
			names = append(names, strings.TrimSuffix(segment, verb))
		case segment != part:
			return nil, false
		}
		rest = after
	}
	return names, ok && rest == "" && !strings.HasSuffix(path, "/")
}

// readQuery reads the query. It refuses parameters that the method does not have.
func readQuery(raw string, known []string) (url.Values, *service.Refusal) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalidArgument("The query cannot be read.")
	}
	for name, values := range query {
		switch {
		case len(values) != 1:
			return nil, invalidArgument("Query parameter '" + name + "' is given twice.")
		case name == "alt" && values[0] == "json", name == "$alt" && strings.HasPrefix(values[0], "json"), name == "prettyPrint":
		case !slices.Contains(known, name):
			return nil, invalidArgument(`Invalid JSON payload received. Unknown name "` +
				name + `": Cannot bind query parameter. Field '` + name +
				`' could not be found in request message.`)
		}
	}
	return query, nil
}

// readJSON decodes the call's body into a message. It refuses fields that the message does not
// have.
func (call *managementCall) readJSON(into any) *service.Refusal {
	media, _, err := mime.ParseMediaType(call.Header.Get("Content-Type"))
	if err != nil || media != "application/json" || !json.Valid(call.body) {
		return invalidArgument("Invalid JSON payload received.")
	}
	decoder := json.NewDecoder(strings.NewReader(string(call.body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
			return invalidArgument("Invalid JSON payload received. Unknown name " + name + ": Cannot find field.").
				Because("the local cloud has no such field")
		}
		return invalidArgument("Invalid JSON payload received.").Because(err.Error())
	}
	return nil
}

func invalidArgument(message string) *service.Refusal {
	return service.Refuse(http.StatusBadRequest, codeInvalid, message)
}

// invalidSetting returns the refusal to create an object with an invalid setting. It translates the
// configuration's field names to the API's names, with the given map.
func invalidSetting(err error, fields map[string]string) *service.Refusal {
	if invalid, ok := errors.AsType[*setting.Error](err); ok {
		if name, named := fields[invalid.Field]; named {
			return invalidArgument("Invalid value for " + name + ": " + invalid.Err.Error())
		}
	}
	return invalidArgument("Invalid value for " + err.Error())
}

// findProject finds a project of the caller's universe by ID or number. It returns nil if there is
// no such project. The lock must be held.
func (c *Cloud) findProject(name, universe string) *project {
	p := cmp.Or(c.projects[name], c.numbers[name])
	if p == nil || p.universe != universe {
		return nil
	}
	return p
}

// require finds a project by ID or number. The caller must have the permission from the project's
// policy, or from own, the policy of a resource in the project. A caller without the permission
// does not learn whether the project exists. The lock must be held.
func (c *Cloud) require(call *managementCall, projectName, permission string, own policy) (*project, *service.Refusal) {
	p := c.findProject(projectName, call.who.universe)
	if p == nil || !c.allowed(call.who, permission, p.id, own) {
		resource := "//" + call.Call.Host + "/" + call.Call.Resource
		return nil, service.Refuse(http.StatusForbidden, codeDenied,
			"Permission '"+permission+"' denied on resource '"+resource+"' (or it may not exist).").
			With(info(infoDenied, "permission", permission, "resource", call.Call.Resource)).
			Because("no binding on project " + projectName + ", or on what is named in it, gives " + permission + " to " + call.who.name())
	}
	return p, nil
}
