// Package change lets another process change a cloud. Each cloud lists the methods that change it
// in one [Table]. The table gives the server its routes and the client its functions.
//
// Each row pairs a method of the cloud with a route. The method's string parameters are the route's
// {wildcards}, followed by its query parameters. If the method's last parameter is not a string, it
// is the JSON body:
//
//	// func (c *Cloud) PutRole(account string, r Role) error
//	PutRole: change.Put(t, "PUT /aws/accounts/{account}/roles", (*Cloud).PutRole),
//	// func (c *Cloud) DeleteRole(account, name string) error
//	DeleteRole: change.Delete(t,
//		"DELETE /aws/accounts/{account}/roles?name", (*Cloud).DeleteRole),
package change

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Sender sends a request to the admin API. If the body is not nil, it is sent as JSON.
type Sender func(ctx context.Context, method, path string, query url.Values, body any) error

// Decoder reads a request's JSON body.
type Decoder func(r *http.Request, into any) error

// Table lists the methods that change a cloud. C is the cloud's type, such as *aws.Cloud. [Put] and
// similar functions add methods to the table. A server starts with the zero value of Table. A
// client sets Send first.
type Table[C any] struct {
	// Send sends a client's requests to the server. It is nil on the server, which sends none.
	Send Sender

	rows []row[C]
}

type row[C any] struct {
	pattern string
	serve   func(cloud C, r *http.Request, decode Decoder) error
}

// Routes returns the functions that handle requests to change a cloud. The keys are their patterns
// for [http.ServeMux].
func (t *Table[C]) Routes(cloud C, decode Decoder) map[string]func(*http.Request) error {
	routes := map[string]func(*http.Request) error{}
	for _, row := range t.rows {
		routes[row.pattern] = func(r *http.Request) error { return row.serve(cloud, r, decode) }
	}
	return routes
}

// route is a row's route, such as "DELETE /a/{b}?c".
type route struct {
	method, path string
	wildcards    []string
	parameters   []string // names of the query parameters
}

var wildcard = regexp.MustCompile(`\{(\w+)\}`)

func parseRoute(s string) route {
	method, target, _ := strings.Cut(s, " ")
	path, query, _ := strings.Cut(target, "?")
	r := route{method: method, path: path}
	for _, m := range wildcard.FindAllStringSubmatch(path, -1) {
		r.wildcards = append(r.wildcards, m[1])
	}
	if query != "" {
		r.parameters = strings.Split(query, "&")
	}
	return r
}

// read returns the values of the route's parameters in a request. It is the inverse of target.
func (t route) read(r *http.Request) []string {
	var texts []string
	for _, name := range t.wildcards {
		texts = append(texts, r.PathValue(name))
	}
	for _, name := range t.parameters {
		texts = append(texts, r.URL.Query().Get(name))
	}
	return texts
}

// target returns the path and query for the values of the route's parameters.
func (t route) target(texts []string) (string, url.Values) {
	path, query := t.path, url.Values{}
	for i, name := range t.wildcards {
		path = strings.Replace(path, "{"+name+"}", url.PathEscape(texts[i]), 1)
	}
	for i, name := range t.parameters {
		query.Set(name, texts[len(t.wildcards)+i])
	}
	return path, query
}

// add adds a row to the table t. On a request that matches pattern, the server calls do, which
// changes the cloud. The type of the request's body is B. If B is noBody, the request has no body.
// add returns the function with which a client sends such a request.
func add[C, B any](
	t *Table[C], pattern string, do func(cloud C, texts []string, body B) error,
) func(ctx context.Context, body B, texts ...string) error {
	route := parseRoute(pattern)
	t.rows = append(t.rows, row[C]{route.method + " " + route.path, func(cloud C, r *http.Request, decode Decoder) error {
		var body B
		if _, none := any(body).(noBody); !none {
			if err := decode(r, &body); err != nil {
				return err
			}
		}
		return do(cloud, route.read(r), body)
	}})
	return func(ctx context.Context, body B, texts ...string) error {
		path, query := route.target(texts)
		if _, none := any(body).(noBody); none {
			return t.Send(ctx, route.method, path, query, nil)
		}
		return t.Send(ctx, route.method, path, query, body)
	}
}

type noBody struct{}

// Set adds a row to the table t. On a request that matches route, the server calls do, a method of
// the cloud. The method takes only a JSON body. Set returns the function with which a client sends
// such a request.
func Set[C, B any](t *Table[C], route string, do func(C, B) error) func(context.Context, B) error {
	send := add(t, route, func(cloud C, _ []string, body B) error { return do(cloud, body) })
	return func(ctx context.Context, body B) error { return send(ctx, body) }
}

// Put adds a row to the table t. On a request that matches route, the server calls do, a method of
// the cloud. The method takes one string, such as an account, and a JSON body. Put returns the
// function with which a client sends such a request.
func Put[C, B any](t *Table[C], route string, do func(C, string, B) error) func(context.Context, string, B) error {
	send := add(t, route, func(cloud C, texts []string, body B) error { return do(cloud, texts[0], body) })
	return func(ctx context.Context, in string, body B) error { return send(ctx, body, in) }
}

// PutIn adds a row to the table t. On a request that matches route, the server calls do, a method
// of the cloud. The method takes two strings, such as an account and a role, and a JSON body. PutIn
// returns the function with which a client sends such a request.
func PutIn[C, B any](t *Table[C], route string, do func(C, string, string, B) error) func(context.Context, string, string, B) error {
	send := add(t, route, func(cloud C, texts []string, body B) error { return do(cloud, texts[0], texts[1], body) })
	return func(ctx context.Context, in, of string, body B) error { return send(ctx, body, in, of) }
}

// Clear adds a row to the table t. On a request that matches route, the server calls do, a method
// of the cloud. The method takes no parameters. Clear returns the function with which a client
// sends such a request.
func Clear[C any](t *Table[C], route string, do func(C)) func(context.Context) error {
	send := add(t, route, func(cloud C, _ []string, _ noBody) error {
		do(cloud)
		return nil
	})
	return func(ctx context.Context) error { return send(ctx, noBody{}) }
}

// Delete adds a row to the table t. On a request that matches route, the server calls do, a method
// of the cloud. The method takes two strings, such as an account and a role. Delete returns the
// function with which a client sends such a request.
func Delete[C any](t *Table[C], route string, do func(C, string, string) error) func(context.Context, string, string) error {
	send := add(t, route, func(cloud C, texts []string, _ noBody) error { return do(cloud, texts[0], texts[1]) })
	return func(ctx context.Context, in, name string) error { return send(ctx, noBody{}, in, name) }
}

// DeleteIn adds a row to the table t. On a request that matches route, the server calls do, a
// method of the cloud. The method takes three strings, such as an account, a region and a name.
// DeleteIn returns the function with which a client sends such a request.
func DeleteIn[C any](
	t *Table[C], route string, do func(C, string, string, string) error,
) func(context.Context, string, string, string) error {
	send := add(t, route, func(cloud C, texts []string, _ noBody) error { return do(cloud, texts[0], texts[1], texts[2]) })
	return func(ctx context.Context, in, of, name string) error { return send(ctx, noBody{}, in, of, name) }
}
